"""What gannet/abi.h declares, read from its text: the structs and their fields, and the functions of its tables.

    for struct in structs(text): struct.name, struct.fields, struct.is_sized
    for (struct, function), arguments in functions(text).items(): ...
"""

import dataclasses
import re

STRUCT = re.compile(r"(typedef struct \w+ \{\n(?:.*\n)*?)\} (gannet_\w+);")


@dataclasses.dataclass
class Struct:
    name: str
    fields: list  # in their order

    @property
    def is_sized(self):  # begins with its size: it may grow, but for a head that other fields follow
        return self.fields[0] == "struct_size" and self.name != "gannet_extension"


def field_of(declaration):
    """'int32_t (*create)(const gannet_host* host, ...)' -> 'create', 'char name[128]' -> 'name'."""
    function = re.search(r"\(\*(\w+)\)\s*\(", declaration)
    return function.group(1) if function else re.search(r"(\w+)\s*(?:\[\w+\])?$", declaration.strip()).group(1)


def fields_of(declaration):
    """'uint64_t columns, matrix_rows' -> ['columns', 'matrix_rows']."""
    return [field_of(declaration)] if "(" in declaration else [field_of(each) for each in declaration.split(",")]


def structs(text, minor=None):
    """As the host has them, with the fields of every minor; or as an author has them who targets `minor`."""
    plain = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    if minor is not None:
        plain = re.sub(r"#if GANNET_TARGET_MINOR >= (\d+)\n(.*?)#endif\n", lambda found: found.group(2) if int(found.group(1)) <= minor else "",
                       plain, flags=re.S)
    plain = re.sub(r"^#(if|endif).*\n", "", plain, flags=re.M)
    found = []
    for match in STRUCT.finditer(plain):
        body = match.group(1).split("{", 1)[1]
        found.append(Struct(match.group(2), [field for each in body.split(";") if each.strip() for field in fields_of(each)]))
    # One that has another form would be passed over in silence.
    if len(found) != plain.count("typedef struct "):
        raise SystemExit(f"read {len(found)} of {plain.count('typedef struct ')} structs: the header has another form than this script knows")
    return found


def functions(text):
    """{("gannet_offload_api", "release"): ["self", "region"], ...}: the function pointers among the fields of structs."""
    plain = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = {}
    for match in STRUCT.finditer(plain):
        for name, arguments in re.findall(r"\(\*(\w+)\)\s*\(([^)]*)\)", match.group(1)):
            found[match.group(2), name] = [field_of(each) for each in arguments.split(",")]
    return found
