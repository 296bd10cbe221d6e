"""Whether a new training reached the models of models/, within the margin that models/README.md promises.

shipped.json has their scores: for each model and kind of answer, how many were right and how many were asked.
"""
import json
import pathlib

SHIPPED = pathlib.Path(__file__).with_name("shipped.json")


def below_shipped(name, right, asked):
    """Returns a sentence for each kind of answer that is more than the margin below the shipped model's."""
    shipped = json.loads(SHIPPED.read_text(encoding="utf-8"))
    points = shipped["margin_points"]
    found = []
    for kind, (best, of) in shipped["models"].get(name, {}).items():
        before = 100 * best / of
        now = 100 * right[kind] / asked[kind] if asked[kind] else 0
        if now < before - points:
            found.append(f"{name}: {now:.1f} % of \"{kind}\" are right, more than {points} points below "
                         f"the {before:.1f} % of the shipped file")
    return found
