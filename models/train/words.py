"""The vocabularies that training data is drawn from: real words, made-up words, numbers.

What counts is that values cannot be guessed, so most names are made up from syllables. A value is held out when
its hash says so: training never draws it, the evaluation draws nothing else. A Words object belongs to one random
number generator and one side of that line.
"""
import zlib

HELD_OUT_SHARE = 10  # One value in ten is held out.

ONSETS = "b d f g h j k l m n p r s t v w z br dr fr gl gr kl kr pl pr sh sk sl sn st th tr".split()
VOWELS = "a e i o u".split() * 3 + "ai au ea ee ia oo ou".split()
CODAS = [""] * 12 + "l m n r s t x k d nd rk st".split()

NOUNS = """anchor apple apron arrow axe bag ball banner barrel basket battery bell belt bench bicycle blanket boat
bolt book boot bottle bowl box bracelet bread brick bridge broom brush bucket button cable cage cake camera candle
cap card carpet cart chain chair chalk cheese chest clock cloak coat coffee coin comb compass cookie cord crate
crown cup curtain cushion desk diary dish doll door drum engine envelope fan feather fence file filter flag flask
flower flute fork frame funnel gate gear glass globe glove goblet guitar hammer harp hat helmet honey hook horn
hose inkwell jacket jar jewel jug kettle key kite knife ladder lamp lantern lemon lens letter lever lock loom
magnet map marble mask mat medal melon mirror mug nail napkin necklace needle net notebook oar onion orange oven
paddle pan paper parcel pear pearl pen pencil pepper phone piano picture pillow pin pipe plank plate plough plum
pot potato printer pump puppet purse quilt radio rake razor ribbon rice ring robe rocket rope rug saddle sail salt
sandal saw scale scarf screw shawl shell shelf shield shirt shoe shovel sieve soap sock spade spear sponge spoon
spring stamp statue stone stool stove string sugar suitcase sword table tape tea telescope tent thread ticket tile
toaster tool torch towel toy tray trowel trumpet trunk tube umbrella valve vase vest violin wagon wallet watch
wheel whistle wire wrench""".split()

ADJECTIVES = """amber ancient big black blue brass bright broken brown bronze clean copper cotton crystal dark dry
dusty empty fancy flat folding fresh glass golden green grey heavy hollow iron ivory large leather light little
long marble narrow new old orange painted pale paper pink plain plastic polished purple red round royal rusty
sharp short shiny silent silk silver simple small smooth soft solid square steel stone striped strong tall thick
thin tiny velvet violet white wide wild wooden woollen yellow""".split()

COLOURS = """red blue green yellow orange purple black white brown grey pink golden silver violet turquoise crimson
beige amber""".split()

JOBS = """baker teacher doctor pilot farmer painter sailor tailor miller smith nurse lawyer writer singer dancer cook
gardener carpenter plumber driver judge soldier hunter fisher weaver potter mason librarian chemist
dentist barber butcher clerk guard merchant miner musician poet priest shepherd surgeon waiter
banker brewer captain detective""".split()

ANIMALS = """cat dog horse rabbit parrot turtle goat hen duck goose pony mouse hamster canary ferret hedgehog lizard
snake frog owl raven falcon donkey sheep cow pig""".split()

FOODS = """bread cheese soup rice beans fish noodles apples honey cake pancakes olives mushrooms potatoes tomatoes
carrots plums pears nuts salad eggs pasta dumplings porridge pudding pickles cherries grapes figs dates""".split()

FIRST_NAMES = """Ada Adam Agnes Alan Albert Alice Amir Amy Anna Anton Arthur Astrid Aya Ben Bella Boris Bruno Carla
Carlos Chloe Clara Daniel David Diana Dora Edgar Edith Elena Elias Ella Emil Emma Eric Esther Eva Felix Fiona
Frank Frida George Gina Greta Grace Hanna Hans Helen Henry Hugo Ida Igor Ines Iris Isaac Ivan Jack James Jana Jane
Jasper Joan Joel John Jonas Julia Karl Kate Kim Lars Laura Lena Leo Liam Lily Linda Lisa Louis Lucy Luke Maria
Mark Marta Max Mia Mila Mina Nadia Nina Noah Nora Olaf Olga Oliver Omar Oscar Otto Paul Paula Peter Petra Rita
Robert Rosa Ruth Sam Sara Simon Sofia Stella Theo Thomas Tina Tom Uma Vera Victor Wanda Yara Zoe""".split()

CITIES = """Amsterdam Athens Barcelona Bergen Berlin Bern Bologna Boston Bremen Cairo Chicago Cologne Copenhagen
Dakar Delhi Dublin Florence Geneva Ghent Hamburg Hanoi Helsinki Istanbul Kyoto Lagos Lima Lisbon London Lyon Madrid
Malta Milan Munich Nairobi Naples Nice Oslo Oxford Paris Porto Prague Quito Riga Rome Seoul Seville Sofia Stockholm
Tokyo Toronto Turin Venice Vienna Warsaw York Zurich""".split()

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

# Traits that one can ask about. Tools and notes are named after these and after made-up ones.
TRAITS = """price stock weight height length width colour owner maker author status rating address password score
rank level limit budget deadline balance speed distance depth age origin name code number phase season material
language currency schedule winner leader capacity temperature pressure size version title rent fee tax salary
grade quota position location timetable forecast reading signal voltage frequency category label alias""".split()

KINDS = """item city person place file order ship train flight parcel room device sensor account customer product
station team project server ticket book recipe car machine field planet plant bird village lake street house garden
tower market hotel engine router printer member patient student game song film""".split()

PLACES = """library museum bakery market harbour station theatre garden school hospital bank chapel castle tower mill
inn farm stable cellar attic kitchen hall office workshop garage bridge park temple lighthouse barn shed forge
chamber vault pantry laundry gallery studio warehouse dock pier tavern arena palace cabin cottage tent
greenhouse""".split()

COUNT_WORDS = "one two three four five six seven eight nine ten eleven twelve".split()
UNITS = "days weeks months hours minutes".split()
EXTENSIONS = "txt md csv json log cfg ini dat py html".split()


def held_out(text):
    """Whether training leaves this value alone. Capital letters do not count."""
    return zlib.crc32(text.lower().encode()) % HELD_OUT_SHARE == 0


class Words:
    """Draws values from one side: those that training sees, or those that were held out."""

    def __init__(self, rng, evaluating=False):
        self.rng = rng
        self.evaluating = evaluating
        self.random = rng.random
        self._pools = {}

    def choice(self, values):
        return values[int(self.random() * len(values))]

    def below(self, low, high):
        """A whole number from low to high, both included."""
        return low + int(self.random() * (high - low + 1))

    def word(self, syllables=None):
        """A made-up word of small letters, on our side of the line."""
        while True:
            count = syllables or self.choice((2, 2, 2, 3))
            parts = [self.choice(ONSETS) + self.choice(VOWELS) for _ in range(count)]
            text = "".join(parts) + self.choice(CODAS)
            if held_out(text) == self.evaluating:
                return text

    def name(self):
        return self.word().capitalize()

    def real(self, values):
        """One of a list of real words. The list is split between the two sides."""
        key = id(values)
        pool = self._pools.get(key)
        if pool is None:
            pool = [v for v in values if held_out(v) == self.evaluating] or values
            self._pools[key] = pool
        return self.choice(pool)

    def person(self):
        roll = self.random()
        if roll < 0.35:
            return self.choice(FIRST_NAMES)
        if roll < 0.8:
            return self.name()
        return self.choice(FIRST_NAMES) + " " + self.name()

    def city(self):
        return self.choice(CITIES) if self.random() < 0.3 else self.name()

    def item(self):
        roll = self.random()
        while True:
            if roll < 0.25:
                return self.choice(NOUNS)
            if roll < 0.6:
                text = self.choice(ADJECTIVES) + " " + self.choice(NOUNS)
                if held_out(text) == self.evaluating:
                    return text
            elif roll < 0.8:
                return self.word() + " " + self.choice(NOUNS)
            else:
                return self.word()

    def place(self):
        roll = self.random()
        if roll < 0.3:
            return self.choice(PLACES)
        if roll < 0.65:
            return self.choice(ADJECTIVES) + " " + self.choice(PLACES)
        return self.name() + " " + self.choice(PLACES)

    def trait(self):
        return self.choice(TRAITS) if self.random() < 0.6 else self.word(2)

    def kind(self):
        return self.choice(KINDS)

    def colour(self):
        return self.choice(COLOURS)

    def job(self):
        return self.choice(JOBS)

    def animal(self):
        return self.choice(ANIMALS)

    def food(self):
        return self.choice(FOODS)

    def day(self):
        return self.choice(DAYS)

    def number(self):
        return str(self.below(1, self.choice((9, 99, 99, 999, 9999))))

    def count(self):
        return str(self.below(2, self.choice((20, 99, 999))))

    def price(self):
        roll = self.random()
        if roll < 0.5:
            return f"{self.below(1, 199)} euros"
        if roll < 0.8:
            return f"{self.below(1, 99)}.{self.below(0, 9)}{self.choice('05')} euros"
        return f"{self.below(2, 99)} coins"

    def time(self):
        return f"{self.below(0, 23)}:{self.below(0, 5)}{self.below(0, 9)}"

    def code(self):
        while True:
            letters = "".join(self.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(self.below(1, 3)))
            text = f"{letters}-{self.below(10, 9999)}" if self.random() < 0.7 else f"{letters}{self.below(1, 99)}"
            if held_out(text) == self.evaluating:
                return text

    def span(self):
        return self.choice(COUNT_WORDS[1:]) + " " + self.choice(UNITS)

    def path(self):
        stem = self.choice(NOUNS) if self.random() < 0.4 else self.word()
        folder = (self.choice(PLACES) if self.random() < 0.5 else self.word()) + "/"
        return (folder if self.random() < 0.4 else "") + stem + "." + self.choice(EXTENSIONS)

    def phrase(self):
        """A few words that say nothing, to be copied."""
        out = []
        for _ in range(self.below(1, 5)):
            out.append(self.choice((self.word, self.item, self.colour, self.number, self.name))())
        return " ".join(out)

    def value(self):
        """Anything."""
        return self.choice((self.word, self.name, self.number, self.code, self.item, self.colour, self.time,
                            self.price, self.city, self.person))()
