# Usage: python3 tests/program/docs_test.py NAME
#
# The site that scripts/build-docs makes. NAME is one of the tests below.
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent.parent


def build(folder, change=lambda tree: None):
    """Builds the site of a copy of the repository, after `change`: (status, what it said, where the site is)."""
    tree = pathlib.Path(folder) / "tree"
    tree.mkdir()
    for path in root.iterdir():
        if path.name in ("docs", "scripts", "README.md"):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, tree / path.name)
        elif not path.name.startswith((".", "build")):
            (tree / path.name).symlink_to(path)
    change(tree)
    site = pathlib.Path(folder) / "site"
    done = subprocess.run([tree / "scripts" / "build-docs", site], stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout, site


def TheSiteLoadsNothingFromElsewhere():
    with tempfile.TemporaryDirectory() as folder:
        status, said, site = build(folder)
        assert status == 0, said
        pages = list(site.rglob("*.html"))
        assert len(pages) > 60, len(pages)
        for page in pages:
            text = page.read_text()
            for loaded in re.findall(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="([^"]*)"', text):
                assert (page.parent / loaded).is_file(), (page, loaded)
            for linked in re.findall(r'<a [^>]*href="([^"#]+)', text):
                assert linked.startswith(("http", "mailto:")) or (page.parent / linked).is_file(), (page, linked)
        for name in ("site.css", "search.js"):
            assert not re.search(r"https?:|//[a-z]|@import|fetch\(|XMLHttp", (site / name).read_text()), name
        assert "CHANGELOG.html" in (site / "sections.js").read_text()


def LinksThatLeadNowhereAreNamed():
    def change(tree):
        with open(tree / "README.md", "a") as readme:
            readme.write("\n[a](docs/none.md) [b](docs/semantics.md#no-such-heading) [c](docs/semantics.md)\n")

    with tempfile.TemporaryDirectory() as folder:
        status, said, _ = build(folder, change)
        assert status == 1, said
        assert "README.md: docs/none.md: no such file" in said, said
        assert "README.md: docs/semantics.md#no-such-heading: no such heading" in said, said
        assert said.count("no such") == 2, said


def PagesThatNobodyFindsAreNamed():
    def change(tree):
        (tree / "docs" / "guide" / "hidden.md").write_text("# Hidden\n")

    with tempfile.TemporaryDirectory() as folder:
        status, said, _ = build(folder, change)
        assert status == 1 and "docs/guide/hidden.md: not in the contents" in said, said


globals()[sys.argv[1]]()
