"""Links of the pages below a folder to files that are not there: dead_links.py FOLDER. Exit code 1 where there is one."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
pages = sorted(root.rglob("*.md"))
dead = [
    f"{page.relative_to(root)}: {target}"
    for page in pages
    for target in re.findall(r"\]\(([^)#\s]+)", CODE.sub("", page.read_text()))
    if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists()
]
print("\n".join(dead))
sys.exit(bool(dead) or not pages)
