"""Modules that become one script."""

import pytest

from ledgermq.http.modules import join_modules

LEAF = "let count = 0;\nexport const add = () => (count += 1);\n"
MIDDLE = 'import { add } from "./leaf.js";\nexport async function twice() {\n  add();\n}\n'
ENTRY = (
    'import { twice } from "./middle.js";\nimport { add } from "./leaf.js";\n'
    'import { page } from "../pages/one.js";\ntwice();\npage();\n'
)
PAGE = 'import { add } from "../js/leaf.js";\nexport const page = () => add();\n'
SCRIPTS = {"js/main.js": ENTRY, "js/middle.js": MIDDLE, "js/leaf.js": LEAF, "pages/one.js": PAGE}


def test_each_module_stands_behind_what_it_imports() -> None:
    joined = join_modules(SCRIPTS | {"js/theme.js": "alone();\n"}, "js/main.js")
    assert joined == {
        "js/main.js": "let count = 0;\nconst add = () => (count += 1);\n"
        "async function twice() {\n  add();\n}\n"
        "const page = () => add();\ntwice();\npage();\n",
        "js/theme.js": "alone();\n",
    }


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        ("js/main.js", ENTRY + "const count = 1;\n", "count is in js/leaf.js and in js/main.js"),
        ("js/leaf.js", LEAF + "export default add;\n", "export default add; .* cannot be joined"),
        ("js/leaf.js", LEAF + 'import * as m from "./x.js";\n', "cannot be joined"),
        ("js/leaf.js", LEAF + "const { a, b } = window;\n", "cannot be joined"),
        ("js/alone.js", 'import { add } from "./leaf.js";\n', "js/alone.js: .* is joined"),
    ],
)
def test_what_cannot_be_joined_is_refused(path: str, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("; .*", ";.*")):
        join_modules(SCRIPTS | {path: text}, "js/main.js")
