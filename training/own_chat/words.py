"""The words of the stories and questions: subjects, names, traits, places.

Owns data alone.
"""

from .word_list import listed, spaced

LAND_ANIMALS = listed(
    """otter|hedgehog|badger|fox|rabbit|bunny|hare|squirrel|chipmunk|mouse|rat|hamster|gerbil|
    guinea pig|mole|shrew|vole|beaver|weasel|ferret|mink|stoat|marten|raccoon|skunk|opossum|
    possum|bear|bear cub|panda|red panda|koala|kangaroo|wallaby|wombat|platypus|echidna|quokka|
    bilby|Tasmanian devil|lion|lion cub|tiger|leopard|cheetah|panther|jaguar|lynx|bobcat|puma|
    cat|kitten|dog|puppy|wolf|wolf cub|coyote|jackal|hyena|dingo|elephant|rhino|hippo|giraffe|
    okapi|zebra|horse|pony|foal|donkey|mule|camel|llama|alpaca|cow|calf|bull|ox|yak|bison|
    buffalo|sheep|lamb|goat|ibex|antelope|gazelle|deer|fawn|moose|elk|reindeer|pig|piglet|boar|
    warthog|tapir|capybara|chinchilla|porcupine|armadillo|anteater|aardvark|sloth|pangolin|
    meerkat|mongoose|monkey|ape|gorilla|chimpanzee|baboon|lemur|tarsier|bat|duck|duckling|goose|
    swan|hen|chick|rooster|turkey|turtle dove|pigeon|dove|sparrow|robin|wren|finch|blackbird|
    nightingale|swallow|magpie|crow|raven|jay|woodpecker|cuckoo|kingfisher|owl|barn owl|eagle|
    hawk|falcon|vulture|parrot|macaw|cockatoo|parakeet|toucan|hummingbird|peacock|pheasant|
    quail|ostrich|emu|kiwi|flamingo|stork|heron|crane|pelican|seagull|puffin|albatross|
    kookaburra|frog|toad|newt|salamander|axolotl|lizard|gecko|iguana|chameleon|snake|tortoise|
    crocodile|alligator|dinosaur|snail|slug|worm|caterpillar|butterfly|moth|bee|bumblebee|wasp|
    ant|ladybug|beetle|cricket|grasshopper|dragonfly|firefly|spider|centipede|mosquito|dragon|
    unicorn|phoenix|griffin"""
)
WATER_ANIMALS = listed(
    """fish|goldfish|clownfish|pufferfish|angelfish|starfish|jellyfish|seahorse|octopus|squid|crab|
    hermit crab|lobster|shrimp|whale|blue whale|dolphin|porpoise|orca|narwhal|walrus|seal|
    sea lion|manatee|shark|stingray|eel|salmon|trout|tadpole|sea turtle|turtle|penguin|clam|
    oyster|sea urchin|mermaid"""
)
MALE_PEOPLE = ("boy", "king", "prince", "grandfather", "uncle", "postman", "fisherman", "wizard")
FEMALE_PEOPLE = ("girl", "queen", "princess", "grandmother", "aunt", "witch", "ballerina", "fairy")
FEMALE_ANIMALS = ("hen", "cow", "mermaid", "goose")
MALE_ANIMALS = ("rooster", "bull", "ox", "boar", "peacock")
PEOPLE = listed(
    """baker|farmer|teacher|doctor|nurse|pilot|sailor|pirate|captain|knight|astronaut|firefighter|
    police officer|gardener|painter|artist|musician|singer|dancer|drummer|violinist|clown|
    juggler|magician|inventor|scientist|explorer|librarian|shopkeeper|tailor|shoemaker|
    carpenter|builder|mechanic|plumber|chef|cook|waiter|shepherd|beekeeper|miller|blacksmith|
    potter|weaver|lighthouse keeper|zookeeper|dentist|vet|bus driver|train driver|writer|poet|
    giant|elf|gnome|troll|goblin|ghost|monster|robot|alien|superhero|detective|swimmer|skater|
    student|twin|toymaker|clockmaker|candle maker|mountain climber|dragon rider"""
)
THING_HEROES = listed(
    """teddy bear|rag doll|toy soldier|wooden horse|puppet|snowman|scarecrow|cloud|star|snowflake|
    raindrop|rainbow|tree|oak tree|apple tree|pine tree|flower|sunflower|daisy|tulip|dandelion|
    leaf|acorn|seed|pebble|mountain|river|puddle|candle|lantern|teapot|clock|broom|button|
    paper boat|little house|lighthouse|windmill|pencil|crayon|sock|mitten|balloon"""
)
OBJECTS = listed(
    """kite|ball|drum|bell|book|key|map|lamp|lantern|candle|mirror|clock|watch|compass|telescope|
    camera|umbrella|hat|cap|scarf|mitten|coat|boot|blanket|pillow|basket|bucket|box|chest|jar|
    bottle|cup|teapot|spoon|pot|kettle|plate|feather|shell|pebble|stone|marble|button|ribbon|
    ring|necklace|crown|coin|whistle|flute|violin|guitar|trumpet|piano|harp|accordion|ukulele|
    tambourine|doll|puppet|teddy bear|toy train|toy boat|robot|puzzle|yo-yo|spinning top|hoop|
    swing|sled|skateboard|rope|ladder|hammer|saw|needle|broom|brush|paintbrush|pencil|crayon|
    notebook|letter|postcard|painting|photo|flag|tent|backpack|suitcase|chair|stool|
    rocking chair|quilt|rug|magnet|magnifying glass|music box|snow globe|balloon|bubble wand|
    wooden spoon|wheelbarrow|watering can|flowerpot|birdhouse|nest|egg|acorn|leaf|flower|rose|
    seed|pumpkin lantern|message in a bottle|magic wand|magic hat|treasure chest|
    invisible cloak|old radio|toy car|toy dinosaur|hot-water bottle|alarm clock"""
)
VEHICLES = listed(
    """train|car|bus|truck|tractor|fire engine|boat|sailboat|rowboat|ship|canoe|raft|submarine|
    ferry|airplane|helicopter|hot-air balloon|rocket|spaceship|bicycle|tricycle|scooter|wagon|
    cart|sleigh|motorcycle|taxi|van|digger|bulldozer|crane truck|tugboat|garbage truck|
    ice cream truck|steam engine|milk truck|snowplow|tram"""
)
FRUITS = listed(
    """apple|pear|peach|plum|cherry|banana|orange|lemon|melon|watermelon|strawberry|mango|
    pineapple|coconut|carrot|pumpkin|potato|tomato|cabbage|onion|cucumber|mushroom"""
)
DISHES = listed(
    """pie|apple pie|cake|birthday cake|chocolate cake|cupcake|cookie|muffin|pancake|waffle|
    doughnut|sandwich|pizza|hamburger|hot dog|omelet|pretzel|loaf of bread|gingerbread man|
    lollipop|candy cane|snow cone|taco"""
)
MASS_FOODS = listed(
    """soup|bread|honey|jam|cheese|butter|rice|pasta|spaghetti|popcorn|chocolate|ice cream|
    lemonade|milk|porridge|oatmeal|cocoa|tea|pudding|gingerbread|candy|apple juice|pumpkin soup|
    tomato soup|fruit salad"""
)
PLACES = listed(
    """forest|beach|park|garden|farm|zoo|library|school|castle|cave|island|mountain|river|lake|
    pond|desert|jungle|village|meadow|lighthouse|market|museum|bakery|toy shop|bookshop|
    playground|treehouse|attic|cellar|bridge|mill|barn|orchard|harbor|circus|fair|train station|
    swimming pool|aquarium|tower|waterfall|valley|secret garden|haunted house|snowy hill|
    old mill|candy shop|hospital"""
)
EVENTS = listed(
    """birthday party|picnic|race|parade|school play|camping trip|sleepover|treasure hunt|concert|
    wedding|snow day|dance|talent show|tea party|football game|harvest feast|holiday|
    long journey|trip to the sea|contest|summer party|puppet show"""
)
SKY = listed("moon|sun|wind|rain|snow|sea|rainbow|night sky|evening star")
VIRTUES = spaced(
    "friendship kindness courage sharing honesty patience love hope bravery forgiveness teamwork "
    "gratitude trust happiness"
)

GIRLS = spaced(
    "Mia Lily Anna Ruby Ella Nora Clara Zoe Maya Rosa Ida Elsie Tess Lucy Hana Amara Leila Freya "
    "Ivy Poppy Sofia Greta Nina Olive Wren Asha Edith June Kira Lena Matilda Priya Saskia Willa"
)
BOYS = spaced(
    "Tom Ben Leo Max Sam Finn Noah Oscar Milo Jack Omar Theo Hugo Felix Ravi Emil Otto Jonas "
    "Luca Arlo Kofi Mateo Henry Elias Toby Idris Axel Rudi Niko Walter Yusuf Anton Caleb Jasper"
)
PET_GIRLS = spaced(
    "Pearl Hazel Dot Bella Tansy Mimi Plum Clover Luna Minnie Tilly Nutmeg Pippa Posy Fern Juno "
    "Coco Honey Misty Pebbles Bluebell Saffron Willow Tulla Ottilie Nell Biscuit Opal Dora Fig"
)
PET_BOYS = spaced(
    "Pip Bruno Rusty Tuk Barnaby Moss Bramble Ollie Waffles Gus Monty Pepper Rolo Figaro Alfie "
    "Bo Chester Dudley Ziggy Nibs Thimble Oskar Tumble Hobbes Jasper Kip Mungo Percy Quill "
    "Stanley"
)

TRAITS = {
    "brave": "{<he> was {not afraid of much|braver than <he> looked}|when others hid, <name> "
    "stayed|being brave did not mean <name> was never afraid}.",
    "shy": "{<he> {did not like|found it hard} to talk to strangers|when someone said hello, "
    "<name> looked at the ground|<he> often hid when others came near}.",
    "clever": "{<he> could think of an answer to almost any question|<name> liked puzzles more "
    "than anything|others came to <him> when they did not know what to do}.",
    "kind": "{<he> always had a good word for everyone|<name> liked to help others|nobody was "
    "ever turned away by <name>}.",
    "lazy": "{<he> liked to lie in the sun all day|<name> put off everything until "
    "tomorrow|getting up was the hardest part of <his> day}.",
    "curious": "{<he> asked a hundred questions a day|<name> wanted to know how everything "
    "worked|<he> looked behind every door and under every stone}.",
    "grumpy": "{<he> grumbled in the morning and grumbled at night|<name> hardly ever "
    "smiled|even sunshine made <him> frown}.",
    "hungry": "{<his> tummy rumbled all day long|<name> was always thinking of the next "
    "meal|<he> could eat all day and still want more}.",
    "tiny": "{<he> was so small that others often did not see <him>|<name> had to look up at "
    "everyone|<he> was the smallest of all}.",
    "sleepy": "{<he> could fall asleep anywhere|<name> yawned from morning to night|<he> was "
    "always late because <he> slept so long}.",
    "lonely": "{<he> wished for someone to talk to|<name> had nobody to play with|the days felt "
    "very long to <him>}.",
    "silly": "{<he> made everyone laugh|<name> liked to do things the wrong way round|<he> wore "
    "a flowerpot as a hat}.",
    "proud": "{<he> thought <he> was better than the others|<name> held <his> head very "
    "high|<he> never asked anyone for help}.",
    "happy": "{<he> hummed all day long|<name> smiled at everyone|even rain could not make <him> "
    "sad}.",
    "sad": "{<he> had not smiled for a long time|<name> sighed a lot|nothing seemed to cheer "
    "<him> up}.",
    "old": "{<he> had seen many summers and winters|<name> moved slowly and knew a lot|the young "
    "ones loved to hear <him> talk}.",
    "young": "{everything was new to <him>|<name> still had a lot to learn|<he> could hardly "
    "wait to grow up}.",
    "clumsy": "{<he> bumped into things all the time|<name> dropped almost everything|if there "
    "was something to trip over, <name> found it}.",
    "gentle": "{<he> never hurt anyone|<name> had a soft voice and a warm heart|even the "
    "smallest bugs were safe with <him>}.",
    "noisy": "{everyone could hear <him> coming|<name> could not be quiet for a minute|<he> sang "
    "loudly all day}.",
    "friendly": "{<he> said hello to everyone|<name> made friends wherever <he> went|nobody "
    "stayed a stranger to <him> for long}.",
    "magical": "{when <he> laughed, little sparks danced in the air|<name> could make flowers "
    "open with a whisper|strange and lovely things happened around <him>}.",
}
LOOKS = ("little", "small", "young", "old", "funny", "merry", "quiet", "cheerful")
COLOURS = ("red", "blue", "green", "yellow", "golden", "silver", "purple", "orange", "tiny", "old")

LAND_HOMES = (
    ("in a green forest", "forest"),
    ("near a quiet river", "river"),
    ("at the edge of a small village", "village"),
    ("on a windy hill", "hill"),
    ("beside a deep blue lake", "lake"),
    ("in a sunny valley", "valley"),
    ("next to an old mill", "mill"),
    ("in a wide meadow", "meadow"),
    ("behind a red barn", "barn"),
    ("at the foot of a tall mountain", "mountain"),
    ("in a busy little town", "town"),
    ("near the sea", "shore"),
    ("in a wild garden", "garden"),
    ("by a round pond", "pond"),
    ("under a big oak tree", "oak tree"),
)
WATER_HOMES = (
    ("in the deep blue sea", "sea"),
    ("in a warm and quiet bay", "bay"),
    ("near a bright coral reef", "reef"),
    ("by a small green island", "island"),
    ("in a forest of seaweed", "seaweed forest"),
    ("under an old wooden pier", "pier"),
    ("beside a sunken ship", "sunken ship"),
    ("in a cool and rocky cove", "cove"),
)
HEAVY_OBJECTS = frozenset(
    listed(
        "piano|rocking chair|ladder|wheelbarrow|tent|chair|swing|chest|treasure "
        "chest|harp|stool|rug"
    )
)
WET_PLACES = frozenset(spaced("river lake pond waterfall beach island"))
