# SPDX-License-Identifier: Apache-2.0

"""The texts on which an exported model is compared with the model."""

# In tokens, of the longest text that an ONNX graph and the model are compared on.
LONGEST = 1024
# How far outputs may differ in float32, relative to the largest output.
TOLERANCE = 1e-4
# Article 1 of the Universal Declaration of Human Rights.
TEXTS = (
    "All human beings are born free and equal in dignity and rights. They are endowed with reason "
    "and conscience and should act towards one another in a spirit of brotherhood.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
    "人人生而自由，在尊严和权利上一律平等。",
    "Equal. " * LONGEST,
)
