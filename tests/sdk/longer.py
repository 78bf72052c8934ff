"""A copy of gannet/abi.h of the next minor, in which structs have one field more.

    python3 longer.py sdk/include/gannet/abi.h build/tests/sdk/longer/gannet/abi.h            all that begin with struct_size
    python3 longer.py sdk/include/gannet/abi.h FOLDER/gannet/abi.h gannet_error gannet_host   these alone
"""

import re
import sys

import abi_header


def longer(text, names=None):
    sized = [each.name for each in abi_header.structs(text) if each.is_sized]
    names = sized if names is None else names
    for name in names:
        if name not in sized:
            sys.exit(f"the header has no struct {name} that begins with struct_size")
        text, count = re.subn(r"\} %s;" % name, r"  uint64_t appended_by_a_later_minor;\n} %s;" % name, text)
        if count != 1:
            sys.exit(f"found {count} ends of {name}")
    return re.sub(r"(#define GANNET_ABI_MINOR )(\d+)", lambda match: match.group(1) + str(int(match.group(2)) + 1), text)


if __name__ == "__main__":
    with open(sys.argv[1]) as header:
        result = longer(header.read(), sys.argv[3:] or None)
    with open(sys.argv[2], "w") as header:
        header.write(result)
