"""A copy of gannet/abi.h of the next minor, in which every struct has one field more.

    python3 longer.py sdk/include/gannet/abi.h build/tests/sdk/longer/gannet/abi.h
"""

import re
import sys

# Part of another struct, so that it can never grow; abi.h says so.
FIXED = {"gannet_note_text"}


def longer(text):
    def grown(match):
        if match.group(2) in FIXED:
            return match.group(0)
        return f"{match.group(1)}  uint64_t appended_by_a_later_minor;\n}} {match.group(2)};"

    text, count = re.subn(r"(typedef struct (?:gannet_\w+) \{\n(?:.*\n)*?)\} (gannet_\w+);", grown, text)
    text = re.sub(r"(#define GANNET_ABI_MINOR )(\d+)", lambda match: match.group(1) + str(int(match.group(2)) + 1), text)
    if count < 20:
        sys.exit(f"found {count} structs: the header has another form than this script knows")
    return text


if __name__ == "__main__":
    with open(sys.argv[1]) as header:
        result = longer(header.read())
    with open(sys.argv[2], "w") as header:
        header.write(result)
