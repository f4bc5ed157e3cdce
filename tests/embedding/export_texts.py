"""Texts on which exported models are compared with their originals."""

from tests.conftest import make_rows

TEXTS = [
    "<s> </s> a<pad>b <unk>",
    "Großer HUND, 12,345.67!",
    "long text " * 60,
    " ",
    "漢字 Привет 🙂 e\u0301",
    "bri\u00addge \ufeffof\u200b wo\u2060rds",
]
for row in make_rows(6, seed=3):
    TEXTS += row.values()
