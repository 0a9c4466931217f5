"""The selectors of the draft, put in the words of today's.

    attributes["runtimeVersion"] >= "v12.0.0" && attributes["memory"] >= "32Gi"

There `attributes` has the attributes of the resource by name, whatever their type; here a quantity is a capacity of the
device and everything else one of its attributes, in the domain of its driver. So each name is looked for in both.
What the draft shows and does not say, as we read it:

- A text that is compared (== != < <= > >=, or `in` a list) with an attribute is read as the attribute's type: for a
  quantity as a quantity, for a version as a version, tolerantly. A number is read so for a quantity. Two attributes of
  one of these types compare by it. In every other place an attribute is the value that it is.
- What cannot be read or compared, and a name that the resource lacks, is an error, as in any CEL expression; who has
  resources of several kinds asks first: `"memory" in attributes && ...`.
- "A map for each type" besides: attributes.quantity, .bool, .int, .intslice, .string, .stringslice and .version, which
  have only the attributes of that type. That is how Kubernetes 1.30 wrote it, so its selectors are read here, too.
- `attributes` is asked by name only; it is no value by itself, and neither are the maps of types.

Source: KEP-4381, first draft ("Using structured parameters"); dynamic-resource-allocation/structured/namedresources/cel
of Kubernetes 1.30.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from manciple.cel.errors import CompileFinding, compile_error
from manciple.cel.kubernetes import normalize, parse_amount, parse_semver
from manciple.cel.parser import EVERY_MACRO, parse
from manciple.cel.text import quote
from manciple.cel.tree import Call, Ident, ListLiteral, Literal, Node, Select
from manciple.cel.types import STRING
from manciple.cel.writing import written

#: The maps of types, in the draft's spelling and in that of 1.30 -> what today's CEL calls the type.
TYPES: Mapping[str, str] = {
    "quantity": "",
    "bool": "bool",
    "int": "int",
    "intslice": "list",
    "intSlice": "list",
    "string": "string",
    "stringslice": "list",
    "stringSlice": "list",
    "version": 'type(semver("0.0.0"))',
}
#: A comparison -> the same with its sides exchanged.
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@lru_cache(maxsize=4096)
def translated(expression: str, driver: str) -> str:
    """A selector of today's that is true for the driver's devices for which `expression` is.

    Raises: CompileError, where the expression says what the draft does not know.
    """
    tree = parse(expression, without=EVERY_MACRO)
    words = _Words(expression, f"device.attributes[{quote(driver)}]", f"device.capacity[{quote(driver)}]")
    return f"device.driver == {quote(driver)} && ({words.of(tree)})"


def tolerant_version(text: str) -> str | None:
    """The version as semantic versioning writes it: spaces, a "v", missing parts and leading zeros are repaired.

    None where it is no version.
    """
    normal = normalize(text.strip())
    try:
        parse_semver(normal)
    except ValueError:
        return None
    return normal


@dataclass(frozen=True, slots=True)
class _Attribute:
    """A place where an attribute is looked up. type: of which map, "" for `attributes` itself."""

    key: Node
    type: str = ""


@dataclass(frozen=True, slots=True)
class _Words:
    """expression: as the error shows it. attributes, capacity: the maps of the driver's."""

    expression: str
    attributes: str
    capacity: str

    def of(self, node: Node) -> str:
        return written(node, self._rewritten)

    def _rewritten(self, node: Node) -> str | None:
        if isinstance(node, Call) and (asked := self._asked(node)) is not None:
            return asked
        if (found := _attribute(node)) is not None:
            return self._value(found)
        if isinstance(node, Ident) and node.name in ("attributes", "device"):
            known = 'attributes can only be asked by name, such as attributes["memory"]'
            unknown = "undeclared reference to 'device' (in container '')"
            finding = CompileFinding(node.offset, known if node.name == "attributes" else unknown)
            raise compile_error(self.expression, [finding])
        return None

    def _asked(self, call: Call) -> str | None:
        """What is asked about attributes; None where it is none of what stands here."""
        operands = call.args
        if call.function == "has" and isinstance(operands[0], Select) and _is_attributes(operands[0].operand):
            return self._present(_Attribute(_name(operands[0])))
        if call.function == "@in" and _is_map(operands[1]):
            return self._present(_Attribute(operands[0], _map_type(operands[1])))
        if call.function == "@in" and isinstance(operands[1], ListLiteral) and _attribute(operands[0]) is not None:
            same = [self._comparison("==", operands[0], element) for element in operands[1].elements]
            return "(" + " || ".join(same or ["false"]) + ")"
        sign = call.function.strip("_")
        return self._comparison(sign, *operands) if sign in _MIRRORED else None

    # One attribute ---------------------------------------------------------------------------------------------------

    def _places(self, attribute: _Attribute) -> tuple[str, str, str]:
        """(its name, the device's capacity, the device's attribute of that name)."""
        key = self.of(attribute.key)
        return key, f"{self.capacity}[{key}]", f"{self.attributes}[{key}]"

    def _present(self, attribute: _Attribute) -> str:
        key, _, text = self._places(attribute)
        if attribute.type == "quantity":
            return f"({key} in {self.capacity})"
        if attribute.type:
            return f"({key} in {self.attributes} && type({text}) == {TYPES[attribute.type]})"
        return f"({key} in {self.capacity} || {key} in {self.attributes})"

    def _value(self, attribute: _Attribute) -> str:
        key, amount, text = self._places(attribute)
        if attribute.type == "quantity":
            return amount
        if attribute.type:
            # a name that no attribute has: of another type is not there
            missing = f"{self.attributes}[{key} + {quote(f' ({attribute.type})')}]"
            return f"(type({text}) == {TYPES[attribute.type]} ? {text} : {missing})"
        return f"({key} in {self.capacity} ? dyn({amount}) : {text})"

    # Comparisons -----------------------------------------------------------------------------------------------------

    def _comparison(self, sign: str, left: Node, right: Node) -> str:
        mine, other = _attribute(left), _attribute(right)
        if mine is not None and other is not None:
            return self._of_two(sign, mine, other)
        if mine is not None:
            return self._with(sign, mine, right)
        if other is not None:
            return self._with(_MIRRORED[sign], other, left)
        return f"({self.of(left)} {sign} {self.of(right)})"

    def _with(self, sign: str, attribute: _Attribute, operand: Node) -> str:
        key, amount, text = self._places(attribute)
        said, given = self.of(operand), _literal(operand)
        if attribute.type or given is None:
            read = {"quantity": amount, "semver": text}.get(_made_by(operand))
            if read is not None and not attribute.type:
                return f"({read}.compareTo({said}) {sign} 0)"
            return f"({self._value(attribute)} {sign} {said})"
        compared = f"{text} {sign} {said}"
        if isinstance(given, str) and (version := tolerant_version(given)) is not None:
            is_version = f"type({text}) == {TYPES['version']}"
            compared = f"{is_version} ? {text}.compareTo(semver({quote(version)})) {sign} 0 : {compared}"
        if _is_amount(str(given)):
            compared = (
                f"{key} in {self.capacity} ? {amount}.compareTo(quantity({quote(str(given))})) {sign} 0 : {compared}"
            )
        return f"({compared})"

    def _of_two(self, sign: str, left: _Attribute, right: _Attribute) -> str:
        (first, first_amount, first_text), (second, second_amount, second_text) = map(self._places, (left, right))
        if left.type or right.type:
            return f"({self._value(left)} {sign} {self._value(right)})"
        amounts = f"{first} in {self.capacity} && {second} in {self.capacity}"
        versions = " && ".join(f"type({text}) == {TYPES['version']}" for text in (first_text, second_text))
        return (
            f"({amounts} ? {first_amount}.compareTo({second_amount}) {sign} 0 : "
            f"{versions} ? {first_text}.compareTo({second_text}) {sign} 0 : "
            f"{self._value(left)} {sign} {self._value(right)})"
        )


def _is_amount(text: str) -> bool:
    try:
        parse_amount(text)
    except ValueError:
        return False
    return True


# What stands in the tree ----------------------------------------------------------------------------------------------


def _is_attributes(node: Node) -> bool:
    return isinstance(node, Ident) and node.name == "attributes"


def _map_type(node: Node) -> str:
    """Of `attributes.TYPE`; "" for everything else."""
    is_typed = isinstance(node, Select) and _is_attributes(node.operand) and node.field_name in TYPES
    return node.field_name if is_typed and isinstance(node, Select) else ""


def _is_map(node: Node) -> bool:
    return _is_attributes(node) or bool(_map_type(node))


def _name(node: Select) -> Literal:
    return Literal(node.offset, node.field_name, STRING)


def _attribute(node: Node) -> _Attribute | None:
    if isinstance(node, Call) and node.function == "_[_]" and _is_map(node.args[0]):
        return _Attribute(node.args[1], _map_type(node.args[0]))
    if isinstance(node, Select) and _is_map(node.operand) and not _map_type(node):
        return _Attribute(_name(node), _map_type(node.operand))
    return None


def _literal(node: Node) -> str | int | None:
    """The text or number that stands there."""
    value = node.value if isinstance(node, Literal) else None
    return value if isinstance(value, str) or type(value) is int else None


def _made_by(node: Node) -> str:
    """The function whose value stands there."""
    return node.function if isinstance(node, Call) and node.target is None else ""
