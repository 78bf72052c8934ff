"""Symbolic sizes as JSON: an integer, the name of a symbol, or [operator, operand...].

    8, "s0", ["*", "s0", "s1"], ["//", ["+", "s0", 1], 2]      sizes
    ["==", ["*", "s0", "s1"], "s2"]                            relations between sizes

Relations are what the trace assumed of its inputs' sizes, as `ExportedProgram.module()` checks them before it runs.
"""
import ast
import functools

from .errors import ExportError

BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
COMPARED = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
LARGER_SMALLER = {"max": "max", "min": "min", "torch.sym_max": "max", "torch.sym_min": "min"}  # PyTorch 2.15 writes torch.sym_max
UNKNOWN = "export with the PyTorch that this package was tried with, or report the expression"


def _folded(operator, operands):
    """[operator, [operator, first, second], third]: the format's operators have two operands."""
    return functools.reduce(lambda one, other: [operator, one, other], operands)


class Symbols:
    """Gives symbols short names in the order of first use, and records their ranges."""

    def __init__(self, range_constraints):
        self.ranges = {str(symbol): limits for symbol, limits in range_constraints.items()}
        self.names = {}

    def name(self, symbol):
        return self.names.setdefault(str(symbol), f"s{len(self.names)}")

    def to_json(self):
        """[{"name": "s0", "min": 2, "max": null}]; null means no limit."""
        return [{"name": short, "min": self._limit(symbol, "lower", 0), "max": self._limit(symbol, "upper", None)}
                for symbol, short in self.names.items()]

    def _limit(self, symbol, which, unlimited):
        limits = self.ranges.get(symbol)
        try:
            value = int(getattr(limits, which))
        except (TypeError, ValueError, AttributeError, OverflowError):  # int_oo is not an int
            return unlimited
        return value if abs(value) < 2**62 else unlimited

    def size(self, dim):
        """A dimension of a fake tensor: an int, or a SymInt with a sympy expression."""
        return dim if isinstance(dim, int) else self._expression(dim.node.expr)

    def _expression(self, expression):
        kind = type(expression).__name__
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            return self.name(expression)
        operands = [self._expression(one) for one in expression.args]
        if kind in ("Add", "Mul"):
            return _folded("+" if kind == "Add" else "*", operands)
        if kind in ("Max", "Min"):
            return _folded(kind.lower(), operands)
        named = {"FloorDiv": "//", "CleanDiv": "//", "Mod": "%", "PythonMod": "%"}
        if kind in named and len(operands) == 2:
            return [named[kind], *operands]
        if kind == "Pow" and isinstance(operands[1], int) and 1 < operands[1] <= 8:
            folded = operands[0]
            for _ in range(operands[1] - 1):
                folded = ["*", folded, operands[0]]
            return folded
        raise ExportError(f"a size of an input is {expression}, an expression that the format lacks", UNKNOWN)


def require_defined(inputs, symbols):
    """Every symbol must occur as a dimension of an input on its own; its value is read there."""
    alone = {dim for one in inputs for dim in one["shape"] if isinstance(dim, str)}
    for symbol in symbols.to_json():
        if symbol["name"] not in alone:
            raise ExportError(f"the size {symbol['name']} follows from sizes of inputs in a way that cannot be solved",
                              "give the model inputs whose sizes it uses as they are")


def relations_of(program, inputs):
    """The relations in the program's guards, expressed in terms of `inputs` as written to the file."""
    code = getattr(program, "_guards_code", None)
    if code is None:
        raise ExportError("this PyTorch does not say which sizes a program accepts (ExportedProgram._guards_code)",
                          "export with a PyTorch that was tried: 2.11, 2.15")
    shapes = {one["name"]: one["shape"] for one in inputs}
    found = []
    for line in code:
        tree = ast.parse(line, mode="eval").body
        if "size()" not in line:  # about values, such as a flag that became constant; the format has only tensors
            continue
        for relation in _relations(tree, shapes, line):
            if relation not in found and not _is_trivial(relation):
                found.append(relation)
    return found


def _is_trivial(relation):
    return relation[0] in ("==", "<=", ">=") and relation[1] == relation[2]


def _relations(tree, shapes, line):
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        for one in tree.values:
            yield from _relations(one, shapes, line)
        return
    if isinstance(tree, ast.BoolOp):
        yield ["or", *[next(_relations(one, shapes, line)) for one in tree.values]]
        return
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        yield ["not", next(_relations(tree.operand, shapes, line))]
        return
    if not isinstance(tree, ast.Compare):
        raise ExportError(f"the trace assumed '{line}' of the sizes, which the format lacks", UNKNOWN)
    operands = [tree.left, *tree.comparators]
    for left, operator, right in zip(operands, tree.ops, operands[1:]):
        yield [COMPARED[type(operator)], _size(left, shapes, line), _size(right, shapes, line)]


def _size(tree, shapes, line):
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        operand = _size(tree.operand, shapes, line)
        return -operand if isinstance(operand, int) else ["*", -1, operand]
    if isinstance(tree, ast.BinOp) and type(tree.op) in BINARY:
        return [BINARY[type(tree.op)], _size(tree.left, shapes, line), _size(tree.right, shapes, line)]
    if isinstance(tree, ast.Call) and len(tree.args) >= 2 and ast.unparse(tree.func) in LARGER_SMALLER:
        return _folded(LARGER_SMALLER[ast.unparse(tree.func)], [_size(one, shapes, line) for one in tree.args])
    if isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Call) and getattr(tree.value.func, "attr", "") == "size":
        source = tree.value.func.value  # L['batch']['input_ids']: the last key is the input
        shape = shapes.get(source.slice.value) if isinstance(source, ast.Subscript) and isinstance(source.slice, ast.Constant) else None
        if shape is not None:
            return shape[tree.slice.value]
    raise ExportError(f"the trace assumed '{line}' of the sizes, of which '{ast.unparse(tree)}' cannot be written down", UNKNOWN)


def constant_dims(inputs):
    """Messages about dimensions that accept only the size of the example."""
    return [f"{one['name']}: dimension {dim} became constant, {size}"
            for one in inputs for dim, size in enumerate(one["shape"]) if isinstance(size, int)]
