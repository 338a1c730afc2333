"""Generates dialogue-like statements with a question each, from a seed, for a memory of any size.

No dataset is needed. Words are drawn uniformly from short lists, unlike in real conversations: names and places recur
far more often, so nearest neighbours are closer and a search has more to tell apart.
"""

from collections.abc import Iterator
from random import Random

Statement = tuple[str, str]  # with its question

_SLOTS = {
    "name": """Clara Bruno Mia Jonas Priya Omar Lucia Tom Aiko Peter Nadia Felix Ruth Samir Greta Hugo Leila Marek Ines
        Viktor Yuna Anton Carmen Elias Freya Gino Hanna Igor Jasmin Karim Lotte Mateo Nora Oskar Paula Rafael Sofia Theo
        Ursula Wanda""",
    "kin": """sister brother cousin aunt uncle grandmother neighbour boss landlord teacher dentist colleague flatmate
        son""",
    "place": """Lisbon Kyoto Lyon Dublin Oslo Cairo Boston Lima Prague Seoul Naples Hanoi Bergen Quito Ghent Tunis Porto
        Austin Zurich Accra Malmo Perth Turin Delhi Galway Bilbao Riga Split Cork Basel Leeds Nantes Graz Toledo""",
    "thing": """piano bicycle sofa camera lamp guitar tent kettle laptop carpet mirror violin backpack clock bookshelf
        telescope umbrella drill kayak typewriter teapot jacket scooter painting microscope bracelet desk drone ladder
        fridge hammock globe suitcase printer saddle easel cello heater trumpet vase""",
    "colour": """green red old tiny heavy broken second-hand blue wooden expensive yellow foldable borrowed striped
        silver""",
    "when": """yesterday|last week|in March|two years ago|on Sunday|this morning|before the holidays|in the autumn
        |during the storm|right after work|at the weekend|on my birthday|last spring|in November|a month ago""",
    "food": """lasagne|oysters|lentil soup|mango ice cream|rye bread|dumplings|goat cheese|apple cake|ramen|olives
        |pancakes|grilled sardines|chocolate|kimchi|couscous|mushroom risotto|pickled herring|falafel|plum jam""",
    "job": """nurse|carpenter|tax lawyer|bus driver|marine biologist|baker|sound engineer|beekeeper|librarian|pilot
        |primary school teacher|data analyst|florist|welder|midwife|translator|locksmith|gardener|cartographer""",
    "hobby": """cycling|choir singing|chess|pottery|climbing|bird watching|salsa|knitting|stargazing|swimming|fencing
        |baking bread|archery|sketching|rowing|gardening|table tennis|calligraphy|orienteering|juggling""",
    "animal": "dog cat parrot tortoise rabbit pony hamster goldfish ferret canary gecko hedgehog",
    "why": """it was too loud|the rent went up|the doctor said so|we ran out of money|the train was cancelled
        |nobody helped|it reminds me of home|my knee hurts|the weather turned|I could not sleep|it was on sale
        |I lost a bet|the children insisted|the roof leaks|they closed the office""",
}

_TEMPLATES: tuple[Statement, ...] = (
    ("I bought a {colour} {thing} in {place} {when}.", "Where did I buy the {colour} {thing}?"),
    ("{name} lost a {colour} {thing} in {place} {when}.", "What did {name} lose in {place}?"),
    ("My {kin} {name} works as a {job} in {place} now.", "What does {name} do for a living?"),
    ("I gave up {hobby} {when} because {why}.", "Why did I give up {hobby}?"),
    ("{name} is allergic to {food}, we found out in {place} {when}.", "What is {name} allergic to?"),
    ("Our {animal} is called {name} and sleeps on the {colour} {thing}.", "Where does our {animal} {name} sleep?"),
    ("We moved from {place} {when} since {why}.", "When did we move from {place}?"),
    ("{name} wants to learn {hobby} with my {kin} in {place}.", "Who wants to learn {hobby} in {place}?"),
    ("I promised my {kin} to cook {food} for {name} {when}.", "What did I promise to cook for {name}?"),
    ("The {colour} {thing} that {name} lent me {when} is in {place}.", "Where is the {thing} that {name} lent me?"),
    ("{name} and I met at a {hobby} course in {place} {when}.", "How did I meet {name}?"),
    ("I have an interview as a {job} in {place}, {name} arranged it {when}.", "Which interview did {name} arrange?"),
    ("My {kin} broke the {colour} {thing} {when} and {name} laughed.", "Who broke the {colour} {thing}?"),
    ("{name} never eats {food}, because {why}.", "Why does {name} never eat {food}?"),
    ("I keep a {colour} {thing} from {place} for {name}.", "What do I keep for {name}?"),
    ("The vet in {place} saw {name}'s {animal} {when}.", "When was {name}'s {animal} at the vet?"),
)


def generate_statements(count: int, seed: int) -> list[Statement]:
    """`count` different statements with their questions; a smaller count gives a prefix of a larger one."""
    random = Random(seed)  # noqa: S311  # words for a benchmark
    words = {slot: _split(text) for slot, text in _SLOTS.items()}
    statements: dict[str, str] = {}
    while len(statements) < count:
        statement, question = random.choice(_TEMPLATES)
        chosen = {slot: random.choice(choices) for slot, choices in words.items()}
        statements.setdefault(statement.format(**chosen), question.format(**chosen))
    return list(statements.items())


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split("|")] if "|" in text else text.split()


def batches(count: int, size: int) -> Iterator[slice]:
    """Slices that cover `count` items."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
