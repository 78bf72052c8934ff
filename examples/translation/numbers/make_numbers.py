"""Writes ro-en/ beside it: the numbers 0 to 599 in words, English and Romanian, in the form that run_translation.py reads.

    python3 examples/translation/numbers/make_numbers.py

540 numbers are in train.json, 30 in validation.json and 30 in test.json. The split is the same in each run.
"""
import json
import pathlib
import random

ONES_EN = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
           "eighteen nineteen").split()
TENS_EN = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ONES_RO = ("zero unu doi trei patru cinci șase șapte opt nouă zece unsprezece doisprezece treisprezece paisprezece "
           "cincisprezece șaisprezece șaptesprezece optsprezece nouăsprezece").split()
TENS_RO = "douăzeci treizeci patruzeci cincizeci șaizeci șaptezeci optzeci nouăzeci".split()
HUNDREDS_RO = ["o sută", "două sute", "trei sute", "patru sute", "cinci sute"]


def english(n):
    if n < 20:
        return ONES_EN[n]
    if n < 100:
        return TENS_EN[n // 10 - 2] + (f"-{ONES_EN[n % 10]}" if n % 10 else "")
    return f"{ONES_EN[n // 100]} hundred" + (f" and {english(n % 100)}" if n % 100 else "")


def romanian(n):
    if n < 20:
        return ONES_RO[n]
    if n < 100:
        return TENS_RO[n // 10 - 2] + (f" și {ONES_RO[n % 10]}" if n % 10 else "")
    return HUNDREDS_RO[n // 100 - 1] + (f" {romanian(n % 100)}" if n % 100 else "")


numbers = list(range(600))
random.Random(4).shuffle(numbers)
folder = pathlib.Path(__file__).resolve().parent / "ro-en"
for name, some in (("train", numbers[:540]), ("validation", numbers[540:570]), ("test", numbers[570:])):
    lines = [json.dumps({"translation": {"en": english(n), "ro": romanian(n)}}, ensure_ascii=False) for n in some]
    (folder / f"{name}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
