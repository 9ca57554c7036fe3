"""What `tools/same_interface.py` takes for a difference, and for an addition only."""

from typing import Any

from tools.same_interface import differences, is_addition, without_texts


def document(schema: dict[str, Any], **operation: Any) -> dict[str, Any]:
    described = {
        "paths": {"/voices": {"get": {"operationId": "list_voices", **operation}}},
        "components": {"schemas": {"Voice": {"type": "object", **schema}}},
    }
    return {"document": without_texts(described)}


def kinds(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each.kind, each.place[-1]) for each in differences(before, after)]


def test_summaries_and_descriptions_are_no_difference() -> None:
    before = document({"description": "A voice."}, summary="The voices", description="All.")
    after = document({"description": "A voice that speaks."}, summary="List voices")
    assert kinds(before, after) == []


def test_a_property_named_description_is_compared() -> None:
    before = document({"properties": {"description": {"type": "string"}, "title": {}}})
    after = document({"properties": {"title": {}}})
    assert kinds(before, after) == [("removed", "description")]


def test_a_renamed_operation_is_a_change() -> None:
    (difference,) = differences(document({}), document({}, operationId="voices"))
    assert str(difference).endswith('get > operationId: "list_voices" → "voices"')
    assert difference.kind == "changed"


def test_a_new_property_or_value_is_an_addition() -> None:
    before = document({"properties": {"state": {"enum": ["new", "ready"]}}})
    after = document({"properties": {"state": {"enum": ["failed", "ready", "new"]}, "age": {}}})
    assert kinds(before, after) == [("added", "age"), ("added", "failed")]


def test_a_new_constraint_is_a_change() -> None:
    before = document({"properties": {"content": {"type": "string"}}})
    after = document({"properties": {"content": {"type": "string", "maxLength": 5}}})
    assert kinds(before, after) == [("changed", "maxLength")]
    after = document({"properties": {"content": {"type": "string"}}, "required": ["content"]})
    assert kinds(before, after) == [("changed", "required")]


def test_only_a_required_parameter_is_more_than_an_addition() -> None:
    before = document({}, parameters=[{"in": "query", "name": "page"}])
    optional = {"in": "query", "name": "limit"}
    for parameter, kind in ((optional, "added"), ({**optional, "required": True}, "changed")):
        after = document({}, parameters=[parameter, {"in": "query", "name": "page"}])
        assert kinds(before, after) == [(kind, "query limit")]


def test_a_new_method_of_a_path_is_an_addition() -> None:
    assert is_addition(("document", "paths", "/voices", "post"), {})
    assert not is_addition(("document", "paths", "/voices", "post", "requestBody"), {})


def test_the_order_of_alternatives_means_nothing() -> None:
    alternatives = [{"type": "string"}, {"$ref": "#/components/schemas/Voice"}, {"type": "null"}]
    before = document({"anyOf": alternatives})
    assert kinds(before, document({"anyOf": alternatives[::-1]})) == []
    assert kinds(before, document({"anyOf": alternatives[1:]})) == [("removed", "string")]


def test_each_new_or_lost_metric_or_command_is_named() -> None:
    before = {"metrics": {"sockets_live": {"labels": {"protocol": {"stt": True, "tts": True}}}}}
    after = {"metrics": {"sockets_live": {"labels": {"protocol": {"stt": True}}}, "calls": {}}}
    assert kinds(before, after) == [("added", "calls"), ("removed", "tts")]
