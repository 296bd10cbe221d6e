"""Small worlds: facts that a prompt states, and the questions that they answer.

A World is a kind of entity and relations; each relation has sentences that state it, questions, and the one sentence
that answers them all, so that a greedy answer is either right or wrong. Facts and answers name the entity before the
value. A Sheet is facts drawn from some worlds, as text and as a table. Some ways to ask never occur in training:
pairs of an opening ("Can you tell me ...") and a clause ("when the library opens") whose hash says so. The evaluation
asks those.
"""
from dataclasses import dataclass, field

from words import held_out

UNKNOWN = "That is not in my notes."

OPENINGS = ("Tell me {c}.", "Please tell me {c}.", "Do you know {c}?", "Can you tell me {c}?", "I want to know {c}.",
            "I would like to know {c}.", "Could you tell me {c}?", "Please say {c}.", "I need to know {c}.",
            "Would you tell me {c}?")


@dataclass(frozen=True)
class Relation:
    key: str
    value: str       # The method of Words that draws values.
    facts: tuple     # {e} is the entity, {v} the value.
    asks: tuple      # Whole questions.
    clauses: tuple   # Clauses that go with openings.
    answer: str
    label: str       # For lists: "- lamp: price 4 euros, stock 2".

    def wrapped(self, held):
        """Questions made of an opening and a clause: those of training, or those that were held out."""
        return tuple(o.format(c=c) for o in OPENINGS for c in self.clauses if held_out(o + c) == held) or self.asks


@dataclass(frozen=True)
class World:
    title: str
    entity: str      # The method of Words that draws entities.
    relations: tuple
    headings: tuple


SHOP = World("shop", "item", (
    Relation("price", "price",
             ("The {e} costs {v}.", "The price of the {e} is {v}.", "We sell the {e} for {v}."),
             ("How much is the {e}?", "What does the {e} cost?", "What is the price of the {e}?",
              "How much does the {e} cost?"),
             ("what the {e} costs", "how much the {e} costs", "the price of the {e}",
              "how much the {e} is"),
             "The {e} costs {v}.", "price"),
    Relation("stock", "count",
             ("The stock of the {e} is {v}.", "The {e} is in stock: {v} of them."),
             ("How many of the {e} do you have?", "How many of the {e} are in stock?",
              "What is the stock of the {e}?", "How many of the {e} are left?"),
             ("how many of the {e} you have", "how many of the {e} are left",
              "the stock of the {e}"),
             "The stock of the {e} is {v}.", "stock"),
    Relation("shelf", "code",
             ("The {e} is on shelf {v}.", "You find the {e} on shelf {v}."),
             ("Which shelf is the {e} on?", "On which shelf do I find the {e}?",
              "Where do I find the {e}?", "On what shelf is the {e}?"),
             ("which shelf the {e} is on", "on which shelf I find the {e}",
              "where I find the {e}"),
             "The {e} is on shelf {v}.", "shelf"),
    Relation("supplier", "person",
             ("The {e} comes from {v}.", "The {e} is made by {v}.", "We buy the {e} from {v}."),
             ("Who makes the {e}?", "Where does the {e} come from?",
              "From whom do we buy the {e}?"),
             ("who makes the {e}", "where the {e} comes from", "from whom we buy the {e}"),
             "The {e} comes from {v}.", "from"),
), ("Stock list", "Our shop", "Items", "What we sell"))

HOURS = World("hours", "place", (
    Relation("opens", "time",
             ("The {e} opens at {v}.", "Opening time of the {e}: {v}."),
             ("When does the {e} open?", "At what time does the {e} open?",
              "What time does the {e} open?", "From when is the {e} open?"),
             ("when the {e} opens", "at what time the {e} opens", "from when the {e} is open"),
             "The {e} opens at {v}.", "opens"),
    Relation("closes", "time",
             ("The {e} closes at {v}.", "The {e} is open until {v}."),
             ("When does the {e} close?", "Until when is the {e} open?",
              "At what time does the {e} close?", "How long is the {e} open?"),
             ("when the {e} closes", "until when the {e} is open", "at what time the {e} closes"),
             "The {e} closes at {v}.", "closes"),
    Relation("rest", "day",
             ("The {e} is closed on {v}.", "The {e} does not open on {v}."),
             ("On which day is the {e} closed?", "When is the {e} closed all day?",
              "What day is the {e} closed?"),
             ("on which day the {e} is closed", "what day the {e} is closed"),
             "The {e} is closed on {v}.", "closed on"),
    Relation("fee", "price",
             ("Entry to the {e} costs {v}.", "A ticket for the {e} is {v}."),
             ("What is the entry fee of the {e}?", "How much is entry to the {e}?",
              "What does a ticket for the {e} cost?"),
             ("how much entry to the {e} is", "what a ticket for the {e} costs",
              "the entry fee of the {e}"),
             "Entry to the {e} costs {v}.", "entry"),
), ("Opening hours", "Places", "Visitor information"))

PEOPLE = World("people", "person", (
    Relation("home", "city",
             ("{e} lives in {v}.", "The home of {e} is in {v}."),
             ("Where does {e} live?", "In which city does {e} live?",
              "What is the home city of {e}?"),
             ("where {e} lives", "in which city {e} lives", "the home city of {e}"),
             "{e} lives in {v}.", "home"),
    Relation("job", "job",
             ("{e} is a {v}.", "{e} works as a {v}."),
             ("What is the job of {e}?", "What does {e} do for a living?",
              "What does {e} work as?"),
             ("the job of {e}", "what {e} does for a living", "what {e} works as"),
             "{e} works as a {v}.", "job"),
    Relation("pet", "word",
             ("{e} has a pet called {v}.", "The pet of {e} is called {v}."),
             ("What is the pet of {e} called?", "What is the name of the pet of {e}?",
              "Which pet does {e} have?"),
             ("what the pet of {e} is called", "the name of the pet of {e}"),
             "The pet of {e} is called {v}.", "pet"),
    Relation("colour", "colour",
             ("The favourite colour of {e} is {v}.", "{e} likes the colour {v}."),
             ("What is the favourite colour of {e}?", "Which colour does {e} like?",
              "What colour does {e} like?"),
             ("the favourite colour of {e}", "which colour {e} likes"),
             "The favourite colour of {e} is {v}.", "colour"),
    Relation("food", "food",
             ("{e} likes to eat {v}.", "The favourite food of {e} is {v}."),
             ("What does {e} like to eat?", "What is the favourite food of {e}?"),
             ("what {e} likes to eat", "the favourite food of {e}"),
             "{e} likes to eat {v}.", "food"),
    Relation("age", "count",
             ("{e} is {v} years old.", "The age of {e} is {v}."),
             ("How old is {e}?", "What is the age of {e}?"),
             ("how old {e} is", "the age of {e}"),
             "{e} is {v} years old.", "age"),
    Relation("friend", "person",
             ("The best friend of {e} is {v}.", "{e} often visits {v}, a good friend."),
             ("Who is the best friend of {e}?", "Who is a friend of {e}?", "Whom does {e} visit?"),
             ("who the best friend of {e} is", "whom {e} visits", "the best friend of {e}"),
             "The best friend of {e} is {v}.", "friend"),
    Relation("phone", "number",
             ("The extension of {e} is {v}.", "You can call {e} at extension {v}."),
             ("What is the extension of {e}?", "At which extension do I reach {e}?",
              "How can I call {e}?"),
             ("the extension of {e}", "at which extension I reach {e}", "how I can call {e}"),
             "The extension of {e} is {v}.", "extension"),
    Relation("room", "code",
             ("{e} works in room {v}.", "The room of {e} is {v}."),
             ("In which room does {e} work?", "What is the room of {e}?",
              "Where is the office of {e}?"),
             ("in which room {e} works", "the room of {e}", "where the office of {e} is"),
             "{e} works in room {v}.", "room"),
), ("People", "Our village", "Staff", "Who is who"))

OBJECTS = World("objects", "item", (
    Relation("where", "place",
             ("The {e} is in the {v}.", "The {e} was put in the {v}.", "The {e} lies in the {v}."),
             ("Where is the {e}?", "In which place is the {e}?", "Where can I find the {e}?"),
             ("where the {e} is", "in which place the {e} is", "where I can find the {e}"),
             "The {e} is in the {v}.", "place"),
    Relation("owner", "person",
             ("The {e} belongs to {v}.", "The {e} is owned by {v}."),
             ("Who owns the {e}?", "To whom does the {e} belong?", "Whose is the {e}?"),
             ("who owns the {e}", "to whom the {e} belongs", "whose the {e} is"),
             "The {e} belongs to {v}.", "owner"),
    Relation("hue", "colour",
             ("The colour of the {e} is {v}.", "The {e} was painted {v}."),
             ("What colour is the {e}?", "Which colour does the {e} have?",
              "What is the colour of the {e}?"),
             ("what colour the {e} is", "the colour of the {e}"),
             "The colour of the {e} is {v}.", "colour"),
    Relation("weight", "number",
             ("The {e} weighs {v} grams.", "The weight of the {e} is {v} grams."),
             ("How much does the {e} weigh?", "How heavy is the {e}?",
              "What is the weight of the {e}?"),
             ("how much the {e} weighs", "how heavy the {e} is", "the weight of the {e}"),
             "The {e} weighs {v} grams.", "weight in grams"),
), ("Things", "Where things are", "The story so far", "Lost and found"))

TRAVEL = World("travel", "city", (
    Relation("hotel", "name",
             ("In {e} you stay at the Hotel {v}.", "The hotel in {e} is the Hotel {v}."),
             ("Which hotel is booked in {e}?", "Where do I stay in {e}?",
              "In which hotel do I stay in {e}?"),
             ("which hotel is booked in {e}", "where I stay in {e}",
              "the name of the hotel in {e}"),
             "In {e} you stay at the Hotel {v}.", "hotel"),
    Relation("train", "time",
             ("The train to {e} leaves at {v}.", "Your train to {e} goes at {v}."),
             ("When does the train to {e} leave?", "At what time is the train to {e}?",
              "What time does my train to {e} leave?"),
             ("when the train to {e} leaves", "at what time the train to {e} leaves",
              "when my train to {e} goes"),
             "The train to {e} leaves at {v}.", "train"),
    Relation("guide", "person",
             ("Your guide in {e} is {v}.", "In {e} you meet {v}, the guide."),
             ("Who is the guide in {e}?", "Whom do I meet in {e}?",
              "What is the name of the guide in {e}?"),
             ("who the guide in {e} is", "whom I meet in {e}", "the name of the guide in {e}"),
             "The guide in {e} is {v}.", "guide"),
    Relation("arrive", "day",
             ("You arrive in {e} on {v}.", "You are in {e} on {v}."),
             ("On which day do I arrive in {e}?", "When am I in {e}?",
              "What day do I arrive in {e}?"),
             ("on which day I arrive in {e}", "when I am in {e}", "what day I arrive in {e}"),
             "You arrive in {e} on {v}.", "day"),
    Relation("nights", "count",
             ("Your stay in {e} is {v} nights long.", "In {e} you stay for {v} nights."),
             ("How many nights do I stay in {e}?", "How many nights are booked in {e}?"),
             ("how many nights I stay in {e}", "how many nights are booked in {e}"),
             "In {e} you stay for {v} nights.", "nights"),
), ("Travel plan", "Your journey", "Itinerary"))

RULES = World("rules", "item", (
    Relation("keep", "span",
             ("The {e} may be kept for {v}.", "You can borrow the {e} for {v}."),
             ("How long may I keep the {e}?", "For how long can I borrow the {e}?",
              "How long can I keep the {e}?"),
             ("how long I may keep the {e}", "for how long I can borrow the {e}"),
             "The {e} may be kept for {v}.", "may be kept for"),
    Relation("late", "price",
             ("The late fee for the {e} is {v}.", "If the {e} comes back late you pay {v}."),
             ("What is the late fee for the {e}?", "How much is the late fee for the {e}?",
              "What do I pay if the {e} is late?"),
             ("the late fee for the {e}", "how much the late fee for the {e} is",
              "what I pay if the {e} is late"),
             "The late fee for the {e} is {v}.", "late fee"),
    Relation("ask", "person",
             ("If you need the {e}, ask {v}.", "The {e} is given out by {v}."),
             ("Whom do I ask for the {e}?", "Who gives out the {e}?"),
             ("whom I ask for the {e}", "who gives out the {e}"),
             "The {e} is given out by {v}.", "ask"),
), ("House rules", "What may be borrowed", "Lending"))

EVENTS = World("events", "name", (
    Relation("when", "day",
             ("The {e} meeting is on {v}.", "The {e} meeting takes place on {v}."),
             ("On which day is the {e} meeting?", "When is the {e} meeting?",
              "What day is the {e} meeting?"),
             ("on which day the {e} meeting is", "what day the {e} meeting is",
              "the day of the {e} meeting"),
             "The {e} meeting is on {v}.", "day"),
    Relation("start", "time",
             ("The {e} meeting begins at {v}.", "The {e} meeting starts at {v}."),
             ("When does the {e} meeting begin?", "At what time does the {e} meeting begin?",
              "What time does the {e} meeting start?"),
             ("when the {e} meeting begins", "at what time the {e} meeting begins",
              "what time the {e} meeting starts"),
             "The {e} meeting begins at {v}.", "begins"),
    Relation("hall", "place",
             ("The {e} meeting is held in the {v}.", "The {e} meeting uses the {v}."),
             ("Where is the {e} meeting?", "In which place is the {e} meeting held?"),
             ("where the {e} meeting is", "in which place the {e} meeting is held"),
             "The {e} meeting is held in the {v}.", "place"),
    Relation("head", "person",
             ("The {e} meeting is led by {v}.", "The leader of the {e} meeting is {v}."),
             ("Who leads the {e} meeting?", "By whom is the {e} meeting led?"),
             ("who leads the {e} meeting", "by whom the {e} meeting is led"),
             "The {e} meeting is led by {v}.", "leader"),
), ("Calendar", "Meetings", "This week"))

WORLDS = (SHOP, HOURS, PEOPLE, OBJECTS, TRAVEL, RULES, EVENTS)

TRAIT_FACTS = ("The {r} of {e} is {v}.", "{e} has the {r} {v}.")
TRAIT_ASKS = ("What is the {r} of {e}?", "Which {r} does {e} have?", "I need the {r} of {e}.",
              "What {r} does {e} have?")
TRAIT_CLAUSES = ("the {r} of {e}", "which {r} {e} has", "what the {r} of {e} is")
TRAIT_ANSWER = "The {r} of {e} is {v}."


def trait_world(words):
    """A world whose relations are drawn, too: nothing but the notes says what they mean."""
    def filled(text, trait):
        return text.replace("{r}", trait)

    relations = []
    for trait in dict.fromkeys(words.trait() for _ in range(words.below(2, 6))):
        relations.append(Relation(
            trait, "value", (filled(words.choice(TRAIT_FACTS), trait),), tuple(filled(t, trait) for t in TRAIT_ASKS),
            tuple(filled(t, trait) for t in TRAIT_CLAUSES), filled(TRAIT_ANSWER, trait), trait))
    kind = words.choice(("name", "word", "code", "person", "city"))
    return World("traits", kind, tuple(relations), ("Notes", "Data", "Records"))


_WRAPPED = {}  # By relation and side; relations of made-up traits come and go.


def ask(words, relation):
    """One way to ask for a relation."""
    if words.random() < 0.5:
        return words.choice(relation.asks)
    if relation.value == "value":
        return words.choice(relation.wrapped(words.evaluating))
    key = (id(relation), words.evaluating)
    if key not in _WRAPPED:
        _WRAPPED[key] = relation.wrapped(words.evaluating)
    return words.choice(_WRAPPED[key])


@dataclass
class Fact:
    relation: Relation
    entity: str
    value: str

    def answer(self):
        return self.relation.answer.format(e=self.entity, v=self.value)


@dataclass
class Sheet:
    """Facts, in the order they are stated, and what can be asked about them."""
    text: str = ""
    facts: list = field(default_factory=list)
    worlds: list = field(default_factory=list)

    def question(self, words, fact):
        """One way to ask for a fact. The evaluation has some of its own."""
        return ask(words, fact.relation).format(e=fact.entity)

    def unknown_question(self, words):
        """A question that the notes do not answer, although they look as if they could."""
        world = words.choice(self.worlds) if self.worlds and words.random() < 0.8 else words.choice(WORLDS)
        known = {(f.relation.key, f.entity) for f in self.facts}
        for _ in range(20):
            relation = words.choice(world.relations)
            entity = getattr(words, world.entity)()
            if self.facts and words.random() < 0.4:  # Something known, but not for this entity.
                other = words.choice(self.facts)
                if any(r is other.relation for r in world.relations):
                    entity = other.entity
            if (relation.key, entity) not in known:
                return ask(words, relation).format(e=entity)
        return "What is the meaning of life?"


def draw_sheet(words, characters):
    """Facts from one or several worlds, of about so many characters."""
    sheet = Sheet()
    parts, used, size = [], set(), 0
    budget = characters
    sections = words.below(1, 1 + min(4, characters // 500))
    headings = words.random() < 0.5
    for left in range(sections, 0, -1):
        world = trait_world(words) if words.random() < 0.25 else words.choice(WORLDS)
        title = words.choice(world.headings)
        part = _section(words, sheet, world, (budget - size) / left, used)
        if not part:
            continue
        parts.append((f"{title}:\n" if headings else "") + part)
        size += len(part)
        sheet.worlds.append(world)
    sheet.text = "\n\n".join(parts) if headings or words.random() < 0.5 else "\n".join(parts)
    return sheet


def _section(words, sheet, world, characters, used):
    """The text of one world's facts; adds them to the sheet."""
    count = words.below(1, len(world.relations))
    relations = sorted(world.relations, key=lambda _: words.random())[:max(count, min(2, len(world.relations)))]
    layout = words.choice(("sentences", "sentences", "lines", "list", "by relation"))
    by_relation = {r.key: [] for r in relations}
    out, size = [], 0
    while size < characters:
        entity = getattr(words, world.entity)()
        if entity in used:
            continue
        used.add(entity)
        facts = []
        for relation in relations:
            if words.random() < 0.85 or len(relations) == 1:
                value = getattr(words, relation.value)()
                facts.append(Fact(relation, entity, value))
        if not facts:
            continue
        sheet.facts.extend(facts)
        if layout == "list":
            text = f"- {entity}: " + ", ".join(f"{f.relation.label} {f.value}" for f in facts)
            out.append(text)
        else:
            said = [words.choice(f.relation.facts).format(e=entity, v=f.value) for f in facts]
            text = " ".join(said)
            if layout == "by relation":
                for fact, sentence in zip(facts, said):
                    by_relation[fact.relation.key].append(sentence)
            else:
                out.append(text)
        size += len(text) + 1
    if layout == "by relation":
        out = [" ".join(group) for group in by_relation.values() if group]
    return (" " if layout == "sentences" else "\n").join(out)
