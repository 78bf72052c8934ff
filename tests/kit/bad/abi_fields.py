"""Writes the fields and function arguments of abi.h as calls of macros, for mutated.cpp.

    abi_fields.py sdk/include/gannet/abi.h > abi_fields.inc

FIELD(gannet_update_args, grad_scale)
FUNCTION(gannet_offload_api, read)
ARGUMENT(gannet_offload_api, read, 2, offset)
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sdk"))
import abi_header  # noqa: E402

APIS = ("gannet_optimizer_api", "gannet_scheduler_api", "gannet_comm_api", "gannet_offload_api")
# The structs that a plugin of these kinds is given or fills in.
STRUCTS = ("gannet_state_spec", "gannet_sum_spec", "gannet_tensor", "gannet_optimizer_context",
           "gannet_optimizer_description", "gannet_step_args", "gannet_segment", "gannet_update_args", "gannet_schedule_query",
           "gannet_schedule_advance", "gannet_schedule_value", "gannet_schedule_description", "gannet_store", "gannet_rendezvous",
           "gannet_collective_args", "gannet_comm_counters")
# Behind these arguments is what the other rows are about.
NO_ARGUMENTS = {"self", "host", "params", "context", "description", "args", "error", "query", "value", "rendezvous", "counters"}


def macros(text):
    for struct in abi_header.structs(text):
        if struct.name in STRUCTS:
            for field in struct.fields:
                yield f"FIELD({struct.name}, {field})"
    for (api, function), arguments in abi_header.functions(text).items():
        if api in APIS:
            yield f"FUNCTION({api}, {function})"
            for index, argument in enumerate(arguments):
                if argument not in NO_ARGUMENTS:
                    yield f"ARGUMENT({api}, {function}, {index}, {argument})"


def rows(text):
    """The same as rows of tests/kit/fields.csv: 'gannet_update_args.grad_scale', 'gannet_offload_api.read(offset)'."""
    for macro in macros(text):
        kind, given = macro[:-1].split("(")
        parts = given.split(", ")
        yield f"{parts[0]}.{parts[1]}" + (f"({parts[3]})" if kind == "ARGUMENT" else "()" if kind == "FUNCTION" else "")


if __name__ == "__main__":
    print("\n".join(macros(pathlib.Path(sys.argv[1]).read_text())))
