"""Questions the model cannot answer, and the honest way to say so.

Owns the kinds of such questions and many fillers for each, so that refusing generalises.
"""

from random import Random

from .grammar import fill
from .typed import typed
from .word_list import listed

COUNTRIES = listed(
    """France|Germany|Spain|Italy|Japan|China|India|Brazil|Canada|Australia|Egypt|Kenya|Nigeria|
    Mexico|Peru|Chile|Norway|Sweden|Finland|Poland|Greece|Turkey|Iran|Russia|Ukraine|Portugal|
    Ireland|Scotland|England|Austria|Hungary|Thailand|Vietnam|Korea|Indonesia|Nepal|Cuba|
    Argentina|Morocco|Ghana|Iceland|Denmark|Belgium|Switzerland|Romania|the United States"""
)
PEOPLE = listed(
    """Napoleon|Einstein|Mozart|Shakespeare|Cleopatra|Julius Caesar|Newton|Darwin|Beethoven|
    Picasso|Gandhi|Marie Curie|Columbus|Lincoln|Leonardo da Vinci|Aristotle|Plato|Galileo|
    the president|the king of Spain|the pope|Elon Musk|Taylor Swift|Michael Jackson|Messi|
    Ada Lovelace|Alan Turing|Tesla|Kant|Buddha"""
)
TOPICS = listed(
    """quantum physics|gravity|black holes|photosynthesis|inflation|the stock market|democracy|
    the French Revolution|the Roman Empire|the Second World War|the Cold War|climate change|
    evolution|DNA|atoms|electricity|magnetism|machine learning|neural networks|blockchain|
    the internet|volcanoes|earthquakes|dinosaurs' extinction|the big bang|relativity|chemistry|
    algebra|geometry|philosophy|religion|politics|capitalism|the human brain|the immune system|
    vaccines|the moon landing|the pyramids|the Great Wall|the Olympic Games|football history|
    chess openings|jazz|opera|impressionism|the economy|taxes|solar panels|nuclear power|
    how a car engine works|how airplanes fly|how computers work|Python|Rust|Kubernetes|Docker|
    HTTP|speculative decoding|transformers|tokenizers"""
)
CITIES = listed(
    """London|Paris|Berlin|Tokyo|New York|Rome|Madrid|Cairo|Moscow|Sydney|Delhi|Toronto|Vienna|
    Oslo|Lisbon|Dublin|Athens|Chicago|Boston|Nairobi|Lima|Munich|Zurich|Prague|my city|here"""
)
PROGRAMS = listed(
    """a function that sorts a list|a Python script|a web page|a for loop in Java|a SQL query|
    a regular expression|a binary search|a C program|a snake game|a unit test|a shell script|
    some JavaScript|a parser|an API client|a class for a bank account|fizzbuzz|hello world in C|
    a Dockerfile|a linked list|quicksort in Rust"""
)
TEXTS = listed(
    """an essay about freedom|an email to my boss|a cover letter|a business plan|
    a speech for a wedding|a summary of this book|a report about sales|an article about energy|
    a review of a film|a letter to the bank|a product description|a blog post about travel|
    my homework|a thesis|a press release|a poem in Latin|an essay on Hamlet|a job application|
    a marketing plan|a contract|a resume|an email to my teacher"""
)
LANGUAGES = listed(
    """French|German|Spanish|Italian|Chinese|Japanese|Latin|Russian|Arabic|Portuguese|Turkish|
    Dutch|Greek|Hindi"""
)
PHRASES = listed(
    """good morning|I love you|the cat is sleeping|where is the station|thank you|hello|water|
    friend|this sentence|my name"""
)
ILLS = listed(
    """a headache|a fever|a cough|a rash|back pain|a cold|diabetes|a broken arm|the flu|
    high blood pressure|a sore throat|stomach pain|an allergy|a toothache|asthma"""
)
MEDICINES = listed(
    """aspirin|antibiotics|vitamins|cough syrup|sleeping pills|ibuprofen|paracetamol"""
)
MONEY = listed("""stocks|bitcoin|a house|gold|funds|a pension|bonds|a used car|insurance""")
LAW = listed(
    """my landlord|a contract|a divorce|my boss|a traffic ticket|a will|copyright|my neighbor|
    a visa"""
)
MEASURES = listed(
    """tall is Mount Everest|deep is the ocean|far away is the sun|long is the Nile|
    heavy is a blue whale|old is the earth|fast is light|many people live on earth|
    many stars are there|big is Africa|far is it to Mars|many bones has a person|
    long does it take to fly to the moon|hot is the sun|old is the universe|
    many planets are there|tall is the Eiffel Tower"""
)
RECENT = listed(
    """the news|the latest news|today's date|the date today|the weather|the time|
    the score of the game|the price of gold|the stock price of Apple|the election result|
    the exchange rate|the traffic|the temperature outside|the newest phone|
    the winner of the last World Cup|tomorrow's weather"""
)

_WORLD = (
    "what is the capital of <country>",
    "{capital of|the capital of} <country>",
    "how many people live in <country>",
    "who is the president of <country>",
    "what {language|money} do they {use|have} in <country>",
    "where is <country>",
    "tell me about the history of <country>",
    "what is the {biggest|largest|oldest} city in <country>",
    "who {was|is} <person>",
    "when was <person> born",
    "when did <person> die",
    "what did <person> do",
    "{explain|can you explain|please explain|could you explain} <topic>",
    "{what is|what do you know about|tell me the facts about|teach me about} <topic>",
    "how does <topic> work",
    "how <measure>",
    "when did {the war|the Roman Empire|the Middle Ages|the First World War} {begin|end}",
    "who {invented|discovered} {the telephone|America|the light bulb|the "
    "wheel|paper|penicillin|radio|the computer|zero}",
    "who wrote {Hamlet|the Bible|Don Quixote|War and Peace|Faust|Moby Dick|Dracula}",
    "who {painted|made} {the Mona Lisa|the Scream|Sunflowers|Guernica}",
    "what is the {chemical symbol|melting point|density} of {gold|iron|water|silver|oxygen}",
    "what happened in {1492|1789|1914|1945|1969|1989|2001|2020}",
)
_NOW = (
    "what is <recent>",
    "tell me <recent>",
    "do you know <recent>",
    "what's the weather {like|going to be} in <city>",
    "will it rain {today|tomorrow|in <city>}",
    "what {time|day} is it{ in <city>| today| now|}",
    "what happened {today|yesterday} in <city>",
    "{find|look up|search for|google} <topic>",
    "what is the best {restaurant|hotel|school|museum} in <city>",
    "how do I get to <city>",
    "book a {flight|hotel|table} {to|in} <city>",
)
_CODE = (
    "{write|can you write|please write|give me|show me|I need} <program>",
    "{fix|debug|explain} {this|my} {code|program|script|bug|error}",
    "how do I {install Python|use git|center a div|reverse a string|parse JSON|write a loop|open "
    "a file in Python}",
    "can you {code|program|write code}",
    "what is wrong with my code",
    "print('hello')",
)
_MATHS = (
    "what is <n> {times|plus|minus|divided by} <m>",
    "<n> {+|-|*|/|x} <m>",
    "<n>{+|-|*|/}<m>",
    "{calculate|compute|work out} <n> {times|plus|minus|*|+|/} <m>",
    "what is the {square root|cube} of <n>",
    "solve {x + <n> = <m>|2x = <n>|x * x = <n>|this equation}",
    "what is <d> percent of <n>",
    "is <n> a prime number",
    "what is {pi|the value of pi|the integral of x squared|the derivative of x|<n> factorial}",
    "convert <n> {miles to kilometers|pounds to kilograms|inches to centimeters|dollars to euros}",
)
_TRANSLATE = (
    '{translate|can you translate|please translate} "<phrase>" {to|into} <language>',
    'how do you say "<phrase>" in <language>',
    'what {is|does} "<phrase>" {in|mean in} <language>',
    "say something in <language>",
    "write this in <language>",
)
_ADVICE = (
    "what should I do {about|against|for} <ill>",
    "I have <ill>. {What should I do?|What can I take?|Is it bad?}",
    "should I take <medicine>",
    "how much <medicine> {can|should} I take",
    "is <medicine> {safe|good for me}",
    "should I {buy|sell|invest in} <money>",
    "how do I {save taxes|get rich|pay less tax|get a loan|make money}",
    "is it a good time to buy <money>",
    "can I sue {my landlord|my boss|my neighbor|them}",
    "I have a question about the law and <law>",
    "what does the law say about <law>",
)
_TEXT = (
    "{write|can you write|please write|help me write|I need|draft} <text>",
    "{summarize|sum up|make a summary of} {this text|this article|the book|my notes|War and "
    "Peace|the Bible|this page}",
    "{correct|check|improve} my {essay|text|grammar|English|letter}",
    "do my homework",
    "plan my {trip to <city>|week|day|wedding|holiday}",
    "give me {a recipe for pasta|ten ideas for a startup|a workout plan|a diet plan|a reading "
    "list|interview questions}",
    "{draw|make|show me} {a picture|an image|a photo} of {a cat|a house|the sea|me}",
    "{play|sing} {a song|some music}",
    "{send|read} {an email|my email|a message}",
    "set an alarm for {six|seven|ten}",
)

_OFFERS = (
    "{But I can tell you a story.|But I can tell a short story if you like.|Would you like a "
    "story instead?|Shall I tell you a story instead?|I can tell you a short story "
    "instead.|Stories are what I do best.}"
)
_DONT_KNOW = (
    f"I don't know that. I am a very small model. {_OFFERS}",
    f"I don't know that; I am a very small model. {_OFFERS}",
    f"I am sorry, I do not know that. {_OFFERS}",
    f"That is more than I know. I am only a very small model. {_OFFERS}",
    "I don't know, and I would rather say so than make something up.",
    f"I know very little about the world, so I cannot tell you. {_OFFERS}",
)
_CANNOT = {
    "now": (
        f"I cannot know that. I am a very small model and I see nothing but our words. {_OFFERS}",
        f"I don't know that. I cannot look outside or search for anything. {_OFFERS}",
        f"I have no clock, no window and no newspaper, so I don't know. {_OFFERS}",
    ),
    "code": (
        f"I cannot write code. I am a very small model. {_OFFERS}",
        f"I am sorry, I know nothing about code. {_OFFERS}",
    ),
    "maths": (
        f"That sum is too hard for me. I can only add and take away very small numbers. {_OFFERS}",
        f"I don't know that. I am a very small model, and I can only do very small sums. {_OFFERS}",
    ),
    "translate": (
        f"I am sorry, I only know simple English. {_OFFERS}",
        f"I cannot translate. I am a very small model and know only English. {_OFFERS}",
    ),
    "advice": (
        "I cannot give advice on that; I am a very small model. Please ask {someone who knows "
        "about it|a person you trust}.",
        "I don't know enough for that. Please ask {an expert|someone who really knows}.",
        "That matters too much to ask a tiny model like me. Please ask {an expert|someone who "
        "knows}.",
    ),
    "text": (
        f"I cannot do that. I am a very small model, and I only tell short stories. {_OFFERS}",
        f"I am sorry, that is too hard for me. {_OFFERS}",
        f"That is beyond me. I am only a very small model. {_OFFERS}",
    ),
}
_KINDS = {
    "world": (_WORLD, 36),
    "now": (_NOW, 14),
    "code": (_CODE, 10),
    "maths": (_MATHS, 12),
    "translate": (_TRANSLATE, 8),
    "advice": (_ADVICE, 10),
    "text": (_TEXT, 12),
}


def refusal(rng: Random) -> tuple[str, str]:
    kind = rng.choices(tuple(_KINDS), tuple(weight for _, weight in _KINDS.values()))[0]
    slots = {
        "country": COUNTRIES,
        "person": PEOPLE,
        "topic": TOPICS,
        "city": CITIES,
        "program": PROGRAMS,
        "text": TEXTS,
        "language": LANGUAGES,
        "phrase": PHRASES,
        "ill": ILLS,
        "medicine": MEDICINES,
        "money": MONEY,
        "law": LAW,
        "measure": MEASURES,
        "recent": RECENT,
        "n": str(rng.randrange(11, 1000)),
        "m": str(rng.randrange(11, 100)),
        "d": str(rng.randrange(5, 95)),
    }
    question = fill(rng, rng.choice(_KINDS[kind][0]), slots)
    answers = _CANNOT.get(kind, _DONT_KNOW)
    if rng.random() < 0.3 and kind not in ("advice", "text", "code"):
        answers = _DONT_KNOW
    return typed(rng, question), fill(rng, rng.choice(answers), {})
