from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cml.errors import UserError
from cml.registry import Choice, Registry

values = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none(), st.text(max_size=8)
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(lambda w: w.isidentifier()), values))
def test_choice_is_read_back_from_its_text(options: dict[str, object]) -> None:
    import keyword

    options = {name: value for name, value in options.items() if not keyword.iskeyword(name)}
    choice = Choice("log-ratio", options)
    assert Choice.parse(str(choice)) == choice


def test_bare_words_are_text() -> None:
    parsed = Choice.parse(" log-ratio( weights=rank, normalize=false, floor=none, ks=[1, 2] ) ")
    assert parsed.settings == {"weights": "rank", "normalize": False, "floor": None, "ks": [1, 2]}
    assert Choice.parse("dense") == Choice("dense")
    assert Choice.parse("dense()") == Choice("dense")


@pytest.mark.parametrize(
    "text", ["", "a b", "a(", "a(1)", "a(b)", "a(b=)", "a(**c)", "a(b=1)(c=2)", "a(b=__import__('os'))", "a(b=1, b=2)"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        Choice.parse(text)


def make(size: int = 3, *, kind: str) -> tuple[int, str]:
    return size, kind


def test_registry_names_what_is_wrong() -> None:
    registry: Registry[tuple[int, str]] = Registry("thing", {"one": make, "lazy": "json:dumps"})
    assert registry.make("one(kind=x)") == (3, "x")
    assert registry.names() == ["lazy", "one"]
    assert registry.entry("lazy").__name__ == "dumps"
    for text, message in (
        ("two", "Unknown thing 'two'. Known: lazy, one"),
        ("one", "needs the setting 'kind'"),
        ("one(sise=2)", "no setting 'sise'. It has: size, kind"),
    ):
        with pytest.raises(UserError, match=message):
            registry.make(text)
    with pytest.raises(UserError, match="taken"):
        registry.register("one")(dict)


def test_registering_takes_one_line() -> None:
    registry: Registry[list[int]] = Registry("thing", {})

    @registry.register("threes")
    def threes(count: int = 2) -> list[int]:
        return [3] * count

    assert registry.make("threes(count=3)") == [3, 3, 3]
    assert threes() == [3, 3]


@pytest.mark.parametrize("name", ["two words", "", "a(b)", "a=b", "a,b", " a"])
def test_names_that_no_option_could_say_are_refused(name: str) -> None:
    registry: Registry[int] = Registry("loss", {})
    with pytest.raises(UserError, match=r"The name of a loss must consist of letters, digits, '_', '-' and '\."):
        registry.register(name)
    registry.register("a-b_c.2")(lambda: 3)
    assert registry.make("a-b_c.2()") == 3


def test_get_takes_the_text_of_the_command_line_and_further_settings() -> None:
    registry: Registry[dict[str, object]] = Registry("box", {"box": lambda size=1, color="red": {size: color}})
    assert registry.get("box(size=3)") == registry.get("box", size=3) == {3: "red"}
    assert registry.get("box(size=3)", color="blue") == {3: "blue"}
    with pytest.raises(UserError, match=r"'size' is given twice: in 'box\(size=3\)' and as 4"):
        registry.get("box(size=3)", size=4)
    with pytest.raises(UserError, match="no setting 'weight'"):
        registry.get("box(weight=3)")
    with pytest.raises(UserError, match="should read 'name' or"):
        registry.get("box(")


@pytest.mark.parametrize("text", ["timm/resnet18", "timm/vit_small_patch14_dinov2.lvd142m", "a/b-c/d.e_f(size=1)"])
def test_names_may_have_parts(text: str) -> None:
    assert str(Choice.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "../x",
        "/etc/passwd",
        "a//b",
        "a/",
        "/a",
        "a/../b",
        "a/.b",
        "./a",
        "a/-b",
        r"a\b",
        "a:b/c",
        "~/x",
        "a/b\n/c",
        "a/ b",
    ],
)
def test_names_are_no_paths(text: str) -> None:
    with pytest.raises(UserError, match="should read 'name'"):
        Choice.parse(text)


def nested(depth: int) -> str:
    return "binary(loss=" * depth + "triplet" + ")" * depth


@pytest.mark.parametrize("depth", [9, 30, 90, 190])
def test_choices_within_choices_have_a_limit(depth: int) -> None:
    """Each level quotes the next, so that thirty would take more memory than there is."""
    assert len(str(Choice.parse(nested(8)))) < 2000
    with pytest.raises(UserError, match=r"is nested too deep|is not a list of settings") as refused:
        Choice.parse(nested(depth))
    assert len(str(refused.value)) < 2000


def test_choices_that_make_each_other_have_a_limit() -> None:
    registry: Registry[int] = Registry("thing", {})

    @registry.register("again")
    def again(depth: int) -> int:
        return depth if depth == 1 else 1 + registry.get("again", depth=depth - 1)

    assert registry.get("again", depth=8) == 8
    with pytest.raises(UserError, match=r"'again\(depth=1\)' is nested too deep"):
        registry.get("again", depth=9)
    assert registry.get("again", depth=8) == 8
