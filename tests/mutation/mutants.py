"""The mutants of a module: its syntax tree with one small fault each.

Left alone, since no behaviour hangs on it or no test should: annotations, decorators, docstrings, `__all__`, imports,
the options of `field`, and the text of errors (what is raised, `__str__`, f-strings, `expected` arguments).
"""

import ast
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Final

from attrs import frozen

__all__ = ["Mutant", "mutants_of"]


@frozen
class Mutant:
    """One mutant: where, what was changed to what, and the code of the whole module."""

    line: int
    function: str
    change: str
    code: CodeType


_COMPARE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_SPEAKING: Final = {
    "ArgumentsError",
    "InvalidValueError",
    "MissingPathError",
    "NumberingError",
    "TypeVar",
    "UnknownMessageError",
    "_MismatchError",
    "check_hash",
    "check_type",
    "cut",
}
_OPTIONS: Final = {"repr", "hash", "kw_only", "eq", "str", "frozen", "init"}

# A change of one node: what it says, how to make it, how to take it back.
_Change = tuple[str, Callable[[], None], Callable[[], None]]


def mutants_of(source: str, filename: str) -> Iterator[Mutant]:
    """Give every mutant of a module's *source*, in the order of the text."""
    tree = ast.parse(source)
    for node, function in _nodes(tree, ""):
        for what, make, undo in _changes(node):
            make()
            ast.fix_missing_locations(tree)
            yield Mutant(getattr(node, "lineno", 0), function, what, compile(tree, filename, "exec"))
            undo()


def _nodes(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
    """Give the nodes that may be changed, each with the name of its function."""
    for child in _children(node):
        name = function
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            if child.name in ("__str__", "__repr__"):
                continue
            name = f"{function}.{child.name}".lstrip(".")
        yield child, name
        yield from _nodes(child, name)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    skipped: set[ast.AST | None] = set()
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        skipped |= {*node.decorator_list, getattr(node, "returns", None)}
    if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
        skipped.add(node.body[0])
    if isinstance(node, ast.AnnAssign | ast.arg):
        skipped.add(node.annotation)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SPEAKING:
        skipped |= {arg for arg in (*node.args, *(word.value for word in node.keywords)) if _is_text(arg)}
    if isinstance(node, ast.Call):
        skipped |= {word for word in node.keywords if word.arg in _OPTIONS}
    for child in ast.iter_child_nodes(node):
        is_names = isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) == "__all__"
        is_alias = isinstance(child, ast.AnnAssign) and ast.unparse(child.annotation) == "TypeAlias"
        if child not in skipped and not is_names and not is_alias and not isinstance(child, ast.JoinedStr):
            yield child


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _changes(node: ast.AST) -> Iterator[_Change]:
    yield from _other_values(node)
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield _in_field(node, "test", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.comprehension):
        for place, test in enumerate(node.ifs):
            yield _in_list(node, node.ifs, place, ast.UnaryOp(ast.Not(), test))
    for name in ("body", "orelse"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield from _removals(block)


def _other_values(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            yield _in_list(node, node.ops, place, _COMPARE[type(operator)]())
    elif isinstance(node, ast.BoolOp):
        yield _in_field(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield _in_field(node, "op", _ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Return) and node.value and not _is_none(node.value):
        yield _in_field(node, "value", ast.Constant(None))


def _constants(node: ast.Constant) -> Iterator[_Change]:
    if isinstance(node.value, bool):
        yield _in_field(node, "value", not node.value)
    elif isinstance(node.value, int):
        yield _in_field(node, "value", node.value + 1)
    elif isinstance(node.value, str):
        yield _in_field(node, "value", node.value + "x")
    elif isinstance(node.value, bytes):
        yield _in_field(node, "value", node.value + b"x")


def _removals(block: list[ast.stmt]) -> Iterator[_Change]:
    for place, statement in enumerate(block):
        if isinstance(statement, ast.Continue):
            yield _in_list(statement, block, place, ast.Break())
        elif isinstance(statement, ast.AugAssign | ast.Raise) or _is_call(statement):
            yield _in_list(statement, block, place, ast.Pass())


def _is_call(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _in_field(node: ast.AST, name: str, new: object) -> _Change:
    old, before = getattr(node, name), ast.unparse(node)
    setattr(node, name, new)
    after = ast.unparse(ast.fix_missing_locations(node))
    setattr(node, name, old)
    return _say(before, after), lambda: setattr(node, name, new), lambda: setattr(node, name, old)


def _in_list(node: ast.AST, holder: list[Any], place: int, new: ast.AST) -> _Change:
    old, before = holder[place], ast.unparse(node)
    holder[place] = new
    after = ast.unparse(new) if isinstance(new, ast.stmt) else ast.unparse(ast.fix_missing_locations(node))
    holder[place] = old
    return _say(before, after), lambda: holder.__setitem__(place, new), lambda: holder.__setitem__(place, old)


def _say(before: str, after: str) -> str:
    old, new = (" ".join(text.split("\n", 1)[0].split()) for text in (before, after))
    return f"{old}  ->  {new}"
