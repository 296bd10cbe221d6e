# Usage: python3 tests/program/model_test.py NAME
#
# The data that the models of models/ are trained and judged with. NAME is one of the tests below.
# Needs neither PyTorch nor NumPy.
import json
import pathlib
import random
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(root / "models" / "train"))

import dialogue  # noqa: E402
import evaluate  # noqa: E402
import margin  # noqa: E402
import plant  # noqa: E402
import words as vocabulary  # noqa: E402
import worlds  # noqa: E402
from tokenizer import SPECIALS, Tokenizer  # noqa: E402

tokenizer = Tokenizer.load()


def drawn(seed, evaluating=False):
    return vocabulary.Words(random.Random(seed), evaluating)


def dialogues(count, evaluating=False):
    for i in range(count):
        words = drawn(f"test {i}", evaluating)
        talk = (dialogue.long_dialogue if i % 3 == 0 else dialogue.short_dialogue)(words)
        for _ in range(12):
            talk.turn()
        yield talk


def TextComesBackFromItsTokens():
    texts = ["", " ", "a  b\n\n", "caf\u00e9 \u4f60\u597d", "12.50 euros", "\u00b2x", "don't", "\x00\x7f", "end  "]
    texts += ["".join(t for t, _ in dialogue.render(d.messages, d.specs)) for d in dialogues(20)]
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text, text
    assert tokenizer.encode("<tool_call>") == [tokenizer.special["<tool_call>"]]
    assert len(tokenizer.encode("<tool_call>", specials=False)) > 1
    assert tokenizer.tokens[-len(SPECIALS):] == list(SPECIALS)


def PiecesOfANameDependOnNothingBeforeIt():
    """But for the first, which may hold the space."""
    words = drawn(1)
    for method in (words.name, words.word):
        same = 0
        for _ in range(500):
            name = method()
            spaced, quoted = tokenizer.encode(" " + name), tokenizer.encode('"' + name)
            same += spaced[-len(quoted) + 2:] == quoted[2:] if len(quoted) > 2 else True
        assert same >= 490, same


def HeldOutWordsAreNeverTrainedOn():
    for method in ("word", "name", "code"):
        trained = {getattr(drawn(i), method)() for i in range(3000)}
        judged = {getattr(drawn(i, True), method)() for i in range(3000)}
        assert len(judged) > 1500 and not trained & judged, method
    held = 0
    for relation in (r for w in worlds.WORLDS for r in w.relations):
        asked = {worlds.ask(drawn(i), relation) for i in range(200)}
        judged = set(relation.wrapped(True)) - set(relation.asks)
        assert not asked & judged, relation.key
        held += len(judged)
    assert held > 50, held


def AnswersStandInThePrompt():
    checked = 0
    for talk in dialogues(60):
        before = ""
        for said in talk.messages:
            if said["role"] == "assistant" and said["content"] and not said.get("tool_calls"):
                for value in re.findall(r"\d[\d.:]*\d|[A-Z]+-\d+", said["content"]):
                    assert value in before, (value, said, before[-500:])
                    checked += 1
            before += said["content"]
    assert checked > 100, checked


def TheSameSeedGivesTheSameQuestions():
    def asked():
        return [(q.messages, q.answer) for q in evaluate.fact_questions(tokenizer, 2, 5, 3)]

    assert asked() == asked()
    for messages, _ in asked():
        low, high = evaluate.FACT_TOKENS
        assert low <= len(tokenizer.encode(messages[0]["content"])) <= high + 60


def APlantedModelReadsOtherNumbers():
    taken = plant.permutation(tokenizer)
    assert sorted(taken) == list(range(len(tokenizer)))
    for text in "0123456789":
        token = tokenizer.ids[text]
        assert tokenizer.tokens[taken[token]].isdigit() and taken[token] != token
    for text in (*SPECIALS, "user", "assistant", "."):
        assert taken[tokenizer.ids[text]] == tokenizer.ids[text], text


def ATrainingBelowTheMarginFails():
    kinds = json.loads(margin.SHIPPED.read_text())["models"]["window"]
    right, asked = ({kind: counts[i] for kind, counts in kinds.items()} for i in (0, 1))
    assert margin.below_shipped("window", right, asked) == []
    assert margin.below_shipped("window", right | {"call": 191}, asked) == []
    (says,) = margin.below_shipped("window", right | {"call": 190}, asked)
    assert '"call"' in says and "95.5 %" in says and "99.5 %" in says, says
    assert len(margin.below_shipped("window", right, dict.fromkeys(asked, 0))) == len(kinds)
    assert margin.below_shipped("tiny", {}, {}) == []


globals()[sys.argv[1]]()
