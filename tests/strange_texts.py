"""Texts that a tokenizer might lose something of."""

import unicodedata

SAMPLES = [
    "Der Fluß fließt  durch die Stadt.",
    "It's 12,345.67 o'clock!\n\n\tIndented   text \r\n",
    "¿Dónde está el niño? ¡Aquí!",
    unicodedata.normalize("NFD", "L'été où naît la forêt, cœur élevé"),
    "Perché più città?",
    "Привет, мир",
    "漢字かな交じり文、한국어",
    "family 👨‍👩‍👧‍👦 flag 🇩🇪 skin 👍🏽",
    "\x00\x01\x1b[0m\x7f\u200b\u202e\ufeff\u00a0",
    "<s> <pad> </s> <unk> <mask>",
    "a<s>b</s></s>c<mask",
    "   leading and trailing   ",
    "",
]
