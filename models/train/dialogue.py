"""Dialogues: a system prompt, and many turns about it. And their text, as the chat template writes it.

A dialogue is a list of messages as clients of OpenAI's API send them, and the tools. render() is the same as
chat.jinja, and says of each piece of text whether the model says it (check_export.py compares the two).
"""
import json

import talk
import tools
import worlds

PREAMBLES = (
    "You are the assistant of {n}. Answer from these notes.", "You are a helpful assistant.",
    "You are the assistant of a small {p}. Answer only from what is written here.", "Here are your notes.",
    "Answer questions about these notes.", "You work for {n}. These are the facts.",
    "You are the assistant of the {p} in {c}. When you do not know something, say so.",
    "Answer in one sentence, and only from what is written here.", "You help the visitors of the {p}.",
    "You are {n}, an assistant. Use the notes below.", "These notes are all you know.",
)
HANDOVERS = ("Here are my notes:\n{t}", "Please read this:\n{t}", "These are the facts.\n{t}", "{t}\nRemember this.")
READ = "Thank you. I have read your notes."
NOTED = "Noted."


def message(role, content):
    return {"role": role, "content": content}


def call_message(calls):
    return {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]}


class Dialogue:
    """A conversation that grows turn by turn. Which facts hold is known at every turn."""

    def __init__(self, words, characters=0, with_tools=False, preamble=True, by_user=False):
        self.words = words
        self.sheet = worlds.draw_sheet(words, characters) if characters else worlds.Sheet()
        self.toolbox = tools.Toolbox(words) if with_tools else None
        self.messages = []
        self.last = None  # The fact that the last question asked for.
        head = ""
        if preamble:
            head = words.choice(PREAMBLES).format(n=words.person(), p=words.choice(("shop", "library", "museum",
                                                  "hotel", "school", "office", "town")), c=words.city())
        text = self.sheet.text
        if by_user and text:
            if head:
                self.messages.append(message("system", head))
            self.say(words.choice(HANDOVERS).format(t=text), READ)
        else:
            system = head + (words.choice((" ", "\n", "\n\n")) if head and text else "") + text
            if system:
                self.messages.append(message("system", system))

    @property
    def specs(self):
        return self.toolbox.specs if self.toolbox else []

    def say(self, question, answer):
        self.messages += [message("user", question), message("assistant", answer)]

    def ask(self, fact=None):
        """A question that the notes answer. Returns the fact."""
        words = self.words
        last = self.last
        fact = fact or words.choice(self.sheet.facts)
        if last and words.random() < 0.2:  # The same about another thing.
            same = [f for f in self.sheet.facts if f.relation is last.relation and f is not last]
            if same:
                fact = words.choice(same)
                asks = fact.relation.asks[0]
                forms = ("And the {e}?", "What about the {e}?") if "the {e}" in asks else \
                    ("And {e}?", "What about {e}?")
                self.say(words.choice(forms).format(e=fact.entity), fact.answer())
                self.last = fact
                return fact
        self.say(self.sheet.question(words, fact), fact.answer())
        self.last = fact
        return fact

    def ask_unknown(self):
        words = self.words
        text = talk.outside(words) if words.random() < 0.3 else self.sheet.unknown_question(words)
        if self.toolbox and any(f" {trait} " in text for trait in self.toolbox.traits()):
            return  # A tool would know the answer.
        self.say(text, worlds.UNKNOWN)
        self.last = None

    def chat(self):
        self.say(*talk.small_talk(self.words))
        self.last = None

    def tell(self):
        """The user states a new fact, which can be asked for later."""
        words = self.words
        world = words.choice(worlds.WORLDS)
        relation = words.choice(world.relations)
        entity, value = getattr(words, world.entity)(), getattr(words, relation.value)()
        if any(f.entity == entity for f in self.sheet.facts):
            return
        text = words.choice(relation.facts).format(e=entity, v=value)
        self.say(words.choice(("Note: {t}", "Remember: {t}", "{t}", "Please note: {t}")).format(t=text), NOTED)
        self.sheet.facts.append(worlds.Fact(relation, entity, value))
        self.last = None

    def use_tool(self):
        task = self.toolbox.task()
        self.messages.append(message("user", task.request))
        for step in task.steps:
            if step.calls:
                self.messages.append(call_message(step.calls))
                self.messages += [message("tool", c.result) for c in step.calls]
            else:
                self.messages.append(message("assistant", step.text))
        self.last = None
        return task

    def turn(self):
        """A random turn."""
        words = self.words
        roll = words.random()
        if self.toolbox and roll < (0.45 if self.sheet.facts else 0.8):
            self.use_tool()
        elif self.sheet.facts:
            roll = words.random()
            if roll < 0.84:
                self.ask()
            elif roll < 0.94:
                self.ask_unknown()
            elif roll < 0.97:
                self.tell()
            else:
                self.chat()
        else:
            roll = words.random()
            if roll < 0.6:
                self.chat()
            elif roll < 0.8:
                self.ask_unknown()
            else:
                self.tell()


def signature(tool):
    about = tool["function"]
    parameters = ", ".join(f"{k}: {v['type']}" for k, v in about["parameters"]["properties"].items())
    return f"- {about['name']}({parameters}): {about['description']}\n"


def system_text(content, specs):
    text = "<|im_start|>system\n" + content
    if specs:
        text += ("\n\n" if content else "") + "Tools:\n" + "".join(signature(t) for t in specs)
        text += 'A call is written <tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>'
    return text + "<|im_end|>\n"


def call_text(call):
    made = call["function"]
    return f'<tool_call>\n{{"name": "{made["name"]}", "arguments": {json.dumps(made["arguments"], ensure_ascii=False)}}}\n</tool_call>'


def render(messages, specs=()):
    """The conversation as pieces of text, each with whether the model says it."""
    pieces = []
    system = messages[0]["content"] if messages and messages[0]["role"] == "system" else ""
    if system or specs:
        pieces.append((system_text(system, specs), False))
    for i, said in enumerate(messages):
        role, content = said["role"], said["content"]
        if role == "tool":
            pieces.append((f"<|im_start|>tool\n<tool_response>\n{content}\n</tool_response><|im_end|>\n", False))
        elif role == "assistant":
            calls = [call_text(c) for c in said.get("tool_calls", ())]
            pieces.append(("<|im_start|>assistant\n", False))
            pieces.append(("\n".join(([content] if content else []) + calls) + "<|im_end|>", True))
            pieces.append(("\n", False))
        elif not (i == 0 and role == "system"):
            pieces.append((f"<|im_start|>{role}\n{content}<|im_end|>\n", False))
    return pieces


def long_dialogue(words):
    """One of the kind that fills thousands of tokens, most of them facts and questions."""
    return Dialogue(words, characters=words.below(600, 6500), with_tools=words.random() < 0.25,
                    preamble=words.random() < 0.9, by_user=words.random() < 0.12)


def short_dialogue(words):
    """One of a few hundred tokens: few facts, tools, or only small talk."""
    roll = words.random()
    if roll < 0.1:
        return Dialogue(words, preamble=words.random() < 0.5)
    if roll < 0.45:
        return Dialogue(words, characters=words.below(60, 300) if words.random() < 0.4 else 0, with_tools=True,
                        preamble=words.random() < 0.6)
    return Dialogue(words, characters=words.below(60, 800), preamble=words.random() < 0.7,
                    by_user=words.random() < 0.15)
