"""The plots of the stories: what goes wrong, what helps, how it ends.

Owns data alone; the notation is grammar's. Slots: `<hero>` is "the otter", `<name>` its name,
`<N>` either of the two, `<who>` "Pip the otter", `<he> <him> <his> <himself>` its pronouns,
`<friend>` and `<a_friend>` the helper, `<went>` how this hero moves; plots about a thing have
`<thing>` ("kite"), `<things>`, `<the_thing>` and `<a_thing>`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot: the tellings of its middle and end, and what can be asked about it."""

    middle: tuple[str, ...]
    end: tuple[str, ...]
    short: str
    trouble: str
    ending: str
    moral: str
    on_land: bool = False


HERO_PLOTS: tuple[Plot, ...] = (
    Plot(
        (
            "One {day|morning|afternoon}, <N> {went|<went>} {farther from home than ever|too far "
            "from home}.",
            "{A thick fog came|It grew dark|The path was gone}, and <he> did not know the way "
            "back.",
            '{"Oh no, I am lost!" said <hero>.|"Where is my home?" <hero> cried.}',
            'Just then <a_friend> came by. {"Do not worry," said <friend>. "I know the '
            'way."|"Follow me," said <friend>, "and we will find it together."}',
            "{Side by side|Slowly and carefully}, they {went past a gray rock and a crooked "
            "branch|looked for the tall rock that <N> knew}.",
        ),
        (
            "{At last|Soon} <N> saw <his> own home. {<he> was so happy that <he> danced|<he> "
            "hugged <friend> for a long time}.",
            "From that day on, <hero> always {looked back to remember the way|told someone where "
            "<he> was going}.",
        ),
        "<who> went too far and got lost. <a_friend> showed <him> the way home.",
        "<name> was lost and did not know the way home.",
        "<friend> showed <name> the way home.",
        "It is good to ask for help when you are lost.",
    ),
    Plot(
        (
            "<N> had {nobody to play with|no friends yet}.",
            "Every {day|morning} <he> watched the others {play|laugh and play}, but <he> {was "
            "too shy to ask|did not dare to say hello}.",
            "One day <a_friend> moved in next door. <friend> looked {a little sad|lonely} too.",
            '<hero> took a deep breath. {"Hello," <he> said softly. "Do you want to play?"|"Hi, '
            'I am <name>," <he> said. "Would you like to be my friend?"}',
            '<friend> {smiled a big smile|jumped for joy}. "{I was hoping you would ask|Yes, '
            'please}!"',
        ),
        (
            "They played {until the sun went down|all day long}.",
            "Now <N> {is not lonely any more|has the best friend in the world}, and <hero> "
            "{knows that one small hello can change a day|says hello to everyone}.",
        ),
        "<who> was lonely until <a_friend> moved in next door. <name> said hello, and they "
        "became friends.",
        "<name> was lonely and too shy to say hello.",
        "<name> and <friend> became friends.",
        "A small hello can be the start of a big friendship.",
    ),
    Plot(
        (
            "There was one thing <N> did not like: {the dark|the night}.",
            "{When the sun went down|Every evening}, <hero> {hid and shook|closed <his> eyes "
            "tight}.",
            "One night <he> heard a tiny voice. {It was|It came from} <a_friend>.",
            '"{Look up|Open your eyes}," said <friend>. "{The dark is where the stars '
            'live|Without the dark we could not see the stars}."',
            "Slowly <N> looked up. {A thousand stars|Little silver lights} were shining {above "
            "<him>|everywhere}.",
        ),
        (
            '"{They are beautiful|How pretty}," whispered <hero>. {<he> counted them until <he> '
            "fell asleep|<he> gave each one a name}.",
            "After that, <N> {was not afraid of the dark any more|could hardly wait for the "
            "night}.",
        ),
        "<who> was afraid of the dark. <a_friend> showed <him> the stars, and then the night was "
        "not so scary.",
        "<name> was afraid of the dark.",
        "<name> looked at the stars and was not afraid any more.",
        "What scares us can be beautiful when we look at it closely.",
    ),
    Plot(
        (
            "{The others|Everyone} said that <N> was too small to help.",
            '"{You can watch|Maybe next year}," they said, and <hero> {felt very small '
            "indeed|went away with a heavy heart}.",
            "One day a {shiny|silver} key fell into a {narrow crack|tiny hole}. {Nobody could "
            "reach it|The big ones tried and tried}.",
            '"{Let me try|I can fit in there}," said <N>.',
            "<he> {squeezed in|slipped inside}, {wriggled to the left and to the right|held "
            "<his> breath}, and came back with the key!",
        ),
        (
            'Everyone cheered. "{We are sorry|We were wrong}," said <a_friend>. "{Small can be '
            'strong|You were just the right size}."',
            "<hero> {smiled from ear to ear|felt as tall as a tree}.",
        ),
        "Everyone said that <who> was too small to help. Then a key fell into a crack, and only "
        "<name> could get it out.",
        "everyone thought that <name> was too small to help.",
        "<name> got the key back and everyone cheered.",
        "You are never too small to help.",
    ),
    Plot(
        (
            "More than anything, <N> wanted to sing.",
            "But when <he> {tried|opened <his> mouth}, it sounded {like a squeaky door|very "
            "strange}. {Some of the others laughed|The others covered their ears}.",
            "<hero> {went off alone|hid} and {cried a little|felt sad}.",
            '<a_friend> {sat down beside <him>|found <him> there}. "{I like your voice|Your song '
            'is not like any other}," said <friend>. "Sing it your own way."',
            "So <N> sang {low and slow|very softly}, and <friend> {tapped along|hummed along}.",
        ),
        (
            "{One by one|Little by little}, the others came to listen. {Nobody laughed now|They "
            "asked for the song again}.",
            "<hero> sang {every evening after that|until the moon was high}, and {everyone slept "
            "well|it made everyone happy}.",
        ),
        "<who> wanted to sing, but the others laughed. <a_friend> told <him> to sing in <his> "
        "own way, and then everyone came to listen.",
        "the others laughed when <name> tried to sing.",
        "<name> sang in <his> own way and everyone listened.",
        "Do things your own way, and someone will love it.",
    ),
    Plot(
        (
            "<N> and <a_friend> were {best friends|the best of friends}.",
            'One day they both {saw|found} a {pretty|shiny} {shell|pebble}. "{It is mine|I saw '
            'it first}!" said <hero>. "{No, it is mine|No, I did}!" said <friend>.',
            "They {pulled and pushed|shouted at each other}, and {went home angry|then nobody "
            "said a word}.",
            "{That night|All evening} <N> could not {be happy|sleep}. {The pretty thing was not "
            "fun at all|Being right was no fun} without a friend.",
            '{In the morning|The next day} <he> went to <friend>. "I am sorry," said <N>. "{You '
            'can have it|I miss you}."',
        ),
        (
            '"I am sorry too," said <friend>. {"Let us share it."|"It can belong to both of us."}',
            "And so {<hero> had it on one day and <friend> on the next|<hero> and <friend> kept "
            "it where they both could see it}.",
        ),
        "<who> and <a_friend> quarreled about something pretty. They both said sorry and shared "
        "it.",
        "<name> and <friend> quarreled about something pretty.",
        "<name> and <friend> said sorry and shared it.",
        "A friend is worth more than a pretty thing.",
    ),
    Plot(
        (
            "One {morning|day} <N> woke up and {something was wrong|looked around}. <his> "
            "favorite bell was gone!",
            "<he> looked {high and low|here and there}, {under|behind} {a stone|the leaves}, but "
            "there was no bell.",
            '<hero> asked <a_friend>. "{Have you seen my bell|Do you know where my bell is}?"',
            '"{Listen|Be very quiet}," said <friend>. They {listened|stood still}. {Ting, '
            "ting|Ding, ding}!",
            "<N> {jumped|laughed}. The bell was hanging {on <his> own back|right behind <him>}! "
            "It had been there all the time.",
        ),
        (
            "They both laughed until {their sides hurt|they had to sit down}.",
            '"{Next time I will look behind me first|Sometimes the thing you seek is very '
            'near}," said <hero>.',
        ),
        "<who> lost <his> bell and looked everywhere. With the help of <a_friend>, <he> found it "
        "on <his> own back.",
        "<name> had lost <his> favorite bell.",
        "<name> found the bell on <his> own back.",
        "What you look for may be closer than you think.",
    ),
    Plot(
        (
            "One night <N> heard a {strange|terrible} noise. {Grrrr-hoo|Rrrr-shoo}! "
            "{Grrrr-hoo|Rrrr-shoo}!",
            '"{Is it a monster|What can that be}?" <hero> {whispered|asked}.',
            "{<his> heart beat fast, but|<he> was afraid, but} <he> wanted to know. So <N> "
            "<went> {closer and closer|toward the sound}.",
            "<he> {peeked around the corner|pushed the leaves aside}. There lay <a_friend>, "
            "{fast asleep|sleeping}, and snoring {very loudly|like a storm}!",
            '<N> {laughed so hard|began to giggle} that <friend> woke up. "{Oh dear, was I '
            'loud|Did I wake you}?" asked <friend>.',
        ),
        (
            '"{A little|You sounded like a monster}," said <hero>, and they both laughed.',
            "After that, {the noise did not scare <him> at all|<N> slept well, even when the "
            "noise came again}.",
        ),
        "<who> heard a scary noise in the night. It was only <a_friend>, who was snoring.",
        "<name> heard a scary noise in the night.",
        "the noise was only <friend> snoring, and they both laughed.",
        "Things are less scary when you find out what they are.",
    ),
    Plot(
        (
            'One {day|windy day}, <N> heard someone call. "{Help! Help|Please help me}!"',
            "It was <a_friend>, who was {stuck between two big rocks|caught in an old net}.",
            "<hero> {pulled|pushed and pulled}, but {nothing moved|it was no use}.",
            '"{I am not strong enough|I cannot do this alone}," said <N>, "but I will not leave '
            'you."',
            "<he> called {as loudly as <he> could|all the neighbors}. {Others came|Soon many "
            'friends came}, big and small. {"One, two, three, pull!" they shouted.|They all '
            "pulled together.}",
        ),
        (
            'Pop! <friend> was free. "{Thank you for staying with me|You did not give up}," said '
            "<friend>.",
            "<hero> {was tired but glad|smiled}. {That night they all ate supper together|They "
            "were friends for ever after}.",
        ),
        "<who> found <a_friend>, who was stuck. <name> called for help, and all together they "
        "pulled until <friend> was free.",
        "<friend> was stuck and <name> was not strong enough to help alone.",
        "everyone pulled together and <friend> was free.",
        "Together we can do what we cannot do alone.",
    ),
    Plot(
        (
            "It was very late, but <N> could not sleep.",
            "<he> {turned left and turned right|counted to ten, and then to ten again}. {Nothing "
            "helped|<his> eyes stayed wide open}.",
            '<hero> went to see <a_friend>. "{I cannot sleep|Sleep will not come to me}," <he> '
            "said.",
            '"{Tell me the best thing of your day|What made you happy today}," said <friend>.',
            '<N> thought about it. {"The warm sun," <he> said. "And a good breakfast."|"I saw a '
            'rainbow," <he> said. "And you waved to me."} <his> voice grew {slower and '
            "slower|softer and softer}.",
        ),
        (
            "{Before <he> had finished|Soon after}, <hero> was {fast asleep|sleeping and smiling}.",
            '"Good night, <name>," whispered <friend>. {The stars kept watch|The moon shone '
            "softly on them both}.",
        ),
        "<who> could not sleep. <a_friend> asked about the best thing of the day, and soon "
        "<name> was asleep.",
        "<name> could not sleep.",
        "<name> fell asleep while thinking of happy things.",
        "Happy thoughts bring good sleep.",
    ),
    Plot(
        (
            "There was going to be a big race, and <N> wanted to win.",
            '<he> practiced {every day|morning and night}. {"This year I will win," <he> '
            "said.|<he> dreamed of the golden cup.}",
            '"{Ready, set, go|One, two, three, go}!" The race began, and <hero> was {in '
            "front|first}!",
            "But then <he> {heard a cry|looked back}. <a_friend> had {fallen and hurt a "
            "foot|fallen down}.",
            "<N> {looked at the finish|thought of the cup}, {then turned around|and then went "
            'back}. "{Lean on me|Come, we will go together}," <he> said.',
        ),
        (
            "They came in last, {side by side|slow but smiling}. {Everyone cheered for them the "
            "loudest|And yet the crowd cheered as if they had won}.",
            "<hero> did not get the cup, but <he> got {a new friend|something better: a friend}.",
        ),
        "<who> was winning a race when <a_friend> fell down. <name> went back to help, and they "
        "finished together.",
        "<friend> fell down in the middle of the race.",
        "<name> and <friend> finished the race together and became friends.",
        "Being kind is better than being first.",
        True,
    ),
    Plot(
        (
            "It was <name>'s birthday, but nobody said a word about it.",
            "<a_friend> {went by without a smile|was too busy to talk}. {The others hurried "
            "past|Nobody had time}.",
            '"{They have all forgotten|Nobody remembers my day}," thought <hero>, and {<he> felt '
            "sad|a tear ran down <his> cheek}.",
            "{In the evening|When the sun was low}, <N> went home. {All was dark|It was very "
            "quiet}.",
            'Then the lights came on. "Surprise!" {everyone shouted|cried all <his> friends}. '
            "There was {a big cake|music and cake}, and <friend> {had made a paper crown|held a "
            "present}.",
        ),
        (
            '"{You did not forget|You remembered}!" said <N>. "{Never|How could we}," said '
            "<friend>.",
            "It was the best birthday <hero> had ever had.",
        ),
        "<who> thought that everyone had forgotten <his> birthday. But <friend> and the others "
        "had planned a surprise party.",
        "<name> thought that everyone had forgotten <his> birthday.",
        "there was a surprise party for <name>.",
        "Your friends may be thinking of you even when you do not see it.",
    ),
    Plot(
        (
            "One {night|day} a great storm came. {The wind howled|Thunder rolled} and {the waves "
            "and trees shook|everything shook}.",
            "<N> had a {safe and cozy|dry and safe} hiding place. {<he> was glad|<he> sat there "
            "and waited}.",
            'Then there was a knock. It was <a_friend>, {cold and afraid|shivering}. "{May I '
            'come in|Please, is there room for me}?"',
            "{There was not much room|It was a very small place}, but <hero> {moved over|made "
            'room}. "{Come in quickly|There is always room for one more}," <he> said.',
            "{Soon another came, and another|Two more came after that}. {They sat close "
            "together|They told stories}, and {nobody was cold|the storm did not seem so loud}.",
        ),
        (
            'In the morning {the sky was clear|the storm was over}. "{You saved us|We will never '
            'forget it}," said <friend>.',
            "And <N> {found that a full house is a happy house|never spent a storm alone again}. "
            "<hero> had many friends now.",
        ),
        "In a great storm, <who> shared a small hiding place with <a_friend> and others. In the "
        "morning they were all safe.",
        "there was a great storm.",
        "everyone was safe, and <name> had many new friends.",
        "There is always room for one more.",
    ),
    Plot(
        (
            'One day <N> found an old map. {There was a red cross on it|"Treasure!" it said at '
            "the top}.",
            '<he> showed it to <a_friend>. "{Let us find it|Shall we look for it together}," '
            "said <hero>.",
            "They {went ten steps to the left|followed the dotted line}, {past a rock like a "
            "nose|around a big stone}, and {under an arch|through a dark hole}.",
            "There they found {a wooden box|an old chest}. {<name>'s heart beat fast|They opened "
            "it slowly}.",
            'There was no gold inside. There was only {a note|a piece of paper}: "{The real '
            'treasure is the friend who came with you|Look who stands beside you}."',
        ),
        (
            "<hero> looked at <friend>, and <friend> looked at <N>. {They both began to "
            "laugh|They smiled}.",
            '"{That is true|I like this treasure best}," said <name>. {They put the map back for '
            "others to find|And they went home happy}.",
        ),
        "<who> and <a_friend> followed an old map. Instead of gold they found a note: the real "
        "treasure was their friendship.",
        "<name> wanted to find the treasure on an old map.",
        "<name> and <friend> learned that their friendship was the treasure.",
        "Friends are the best treasure.",
    ),
    Plot(
        (
            '<N> liked to {boast|brag}. "{I am the best at everything|Nobody is as good as I '
            'am}," <he> said.',
            'One day <a_friend> asked, "{Can you teach me to juggle|Can you stand on your head}?"',
            '"Of course," said <hero>, but <he> had never tried it. {<he> tried once, and fell '
            "down|Bump! <he> landed in the mud}. {<he> tried again, and fell again|Bump! It "
            "happened again}.",
            '<N> {turned red|looked down}. "{I do not know how|I cannot do it}," <he> said '
            "{quietly|at last}.",
            '<friend> did not laugh. "{I cannot do it either|That is all right}," said <friend>. '
            '"{Let us learn it together|We can learn}."',
        ),
        (
            "They practiced {every day|for a week}, and {fell and laughed|laughed a lot}, until "
            "they could do it.",
            "<hero> did not boast any more. {Learning was more fun|It was better to have a "
            "friend}.",
        ),
        "<who> boasted of things <he> could not do. <a_friend> offered to learn together with "
        "<him>, and <name> stopped boasting.",
        "<name> boasted of something <he> could not do.",
        "<name> and <friend> learned it together.",
        "It is better to learn than to boast.",
    ),
    Plot(
        (
            "One day <N> was playing {too wildly|with a ball}. {Crash|Bang}! <a_friend>'s "
            "favorite cup was broken.",
            '"{Who did this|What happened here}?" asked <friend>.',
            '"{The wind did it|I do not know}," said <hero>. But {<his> tummy felt strange|it '
            "was not true}.",
            "All day {the lie felt heavy as a stone|<N> could not play}. {Even supper did not "
            "taste good|<he> could not look at anyone}.",
            '{At last|In the evening} <he> went back. "{It was me|I broke your cup}," said <N>. '
            '"I am sorry that I did not tell the truth."',
        ),
        (
            '"{Thank you for telling me|That was brave}," said <friend>. "{A cup can be mended|A '
            'friend who tells the truth is worth more than a cup}."',
            "Together they {glued the pieces|mended it}, and <hero> felt {light as a "
            "feather|much better}.",
        ),
        "<who> broke a cup and did not tell the truth. Later <he> said sorry to <friend>, and "
        "they mended it together.",
        "<name> broke a cup and did not tell the truth.",
        "<name> told the truth, and they mended the cup together.",
        "Telling the truth makes the heart light.",
    ),
    Plot(
        (
            "One spring day <N> planted a little seed.",
            "<he> {watered it|gave it water} and waited. {The next day|In the morning} there was "
            "{nothing|only brown earth}.",
            '"{Grow, seed, grow|Please grow}!" said <hero>. {<he> sang to it|<he> talked to it}. '
            "Still nothing.",
            '"{Good things take time|You must wait}," said <a_friend>. "{The seed is working '
            'where you cannot see it|Water it and be patient}."',
            "So <N> watered it {day after day|every morning}. {It rained, and the sun shone|One "
            "week went by, then two}.",
        ),
        (
            "Then {a tiny green leaf came up|something green peeked out}! {It grew and grew|Soon "
            "it was tall}, and in summer it was a {big yellow sunflower|beautiful flower}.",
            '"{You were right|It was worth the wait}," said <hero> to <friend>.',
        ),
        "<who> planted a seed and wanted it to grow at once. <a_friend> told <him> to be "
        "patient, and in summer there was a beautiful flower.",
        "the seed did not grow at once.",
        "the seed became a beautiful flower.",
        "Good things take time.",
        True,
    ),
    Plot(
        (
            'One night a {bright|shooting} star fell. "{Make a wish|You have one wish}," it '
            "{whispered|seemed to say}.",
            "<N> thought {hard|and thought}. {A mountain of cake|A big house}? {A crown of "
            "gold|New toys}?",
            "Then <hero> saw <a_friend>, who {had been ill for a long time|was sad and alone}.",
            '"{I know my wish|I am ready}," said <N>. "{Please make my friend well and happy|I '
            'wish that my friend can smile again}."',
            "The star {twinkled|shone once more} and was gone.",
        ),
        (
            "In the morning <friend> {came out and danced|laughed for the first time in weeks}. "
            '{<name> never told about the wish|"What a lovely day!" said <friend>.}',
            "<hero> had no cake and no crown, but <his> heart was {full|warm}.",
        ),
        "<who> could make one wish. <he> wished that <friend> would be happy again, and it came "
        "true.",
        "<name> had only one wish and did not know what to wish for.",
        "<friend> was well and happy again.",
        "Giving makes the heart warm.",
    ),
    Plot(
        (
            "Tomorrow was the birthday of <a_friend>, and <N> had no present.",
            '<he> had no {money|coins}. {"What can I give?" <he> wondered.|<he> looked at all '
            "the pretty things in the shop and sighed.}",
            "<hero> {sat and thought|thought for a long time}. Then <he> had an idea!",
            "<N> {worked all night|worked and worked}. <he> {made a picture of the two of "
            "them|made up a little song about all they had done together}.",
            'In the morning <he> was {nervous|afraid that it was too little}. "{I made it '
            'myself|It is not much}," said <name>.',
        ),
        (
            "<friend>'s eyes {shone|filled with happy tears}. \"{This is the best present of "
            'all|Nobody ever made something for me}!"',
            "And <hero> {was proud and glad|learned that gifts from the heart are the best}.",
        ),
        "<who> had no money for a present for <friend>. So <he> made one, and it was the best "
        "present of all.",
        "<name> had no present for <friend>.",
        "<friend> loved the present that <name> had made.",
        "Gifts from the heart are the best.",
    ),
    Plot(
        (
            "<N> wanted to learn to {swing on a rope|balance on a ball|paint}.",
            "The first time, {it went all wrong|<he> fell on <his> nose}. The second time {was "
            "no better|was even worse}.",
            '"{I will never learn it|I give up}!" said <hero> and {stamped|sat down}.',
            '"{I fell a hundred times when I learned it|Nobody can do it at first}," said '
            '<a_friend>. "{Say: I cannot do it yet|You only need to try once more than you '
            'fall}."',
            '"{Yet|Once more}," said <N>. <he> tried again, and again, {for days and days|until '
            "evening}.",
        ),
        (
            'And then {it worked|all at once <he> could do it}! "{Look at me|I can do it}!" '
            "{called|cried} <N>.",
            "<friend> clapped. {<hero> was so proud|Now <hero> helps others who are learning}.",
        ),
        "<who> wanted to learn something new, but it was hard. <a_friend> said to try again, and "
        "at last <name> could do it.",
        "learning something new was very hard for <name>.",
        "<name> did not give up, and at last <he> could do it.",
        "Do not say that you cannot do it: say that you cannot do it yet.",
    ),
    Plot(
        (
            "<name>'s best friend, <a_friend>, had moved far away.",
            "<N> missed {the games they had played|the sound of laughing}. {The days were "
            "gray|Nothing was fun}.",
            '"{I will write a letter|I know what to do}," said <hero>. <he> wrote about {the '
            "weather, and a joke|everything}, and {drew a heart|put a feather in it}.",
            "<he> gave it to the {wind|mail} and waited. {One week passed|Days passed}. {Two "
            "weeks passed|Nothing came}.",
            'Then one morning there was a letter for <N>! "{I think of you every day|I miss you '
            'too}," it said. "Look out of your door."',
        ),
        (
            "<hero> looked, and there stood <friend>! {They hugged and hugged|They both shouted "
            "for joy}.",
            "They {talked all night|had so much to tell}. {Far away or near, they stayed "
            "friends|<N> was happy again}.",
        ),
        "<who> missed <friend>, who had moved far away. <name> wrote a letter, and one day "
        "<friend> came to visit.",
        "<name> missed <his> best friend, who had moved far away.",
        "<friend> came to visit <name>.",
        "Friends stay friends, far away or near.",
    ),
    Plot(
        (
            "A {wide|fast} stream ran past <name>'s home. On the other side lived <a_friend>.",
            "{They could only wave|They shouted hello every day}, but they could never play "
            "together.",
            '"{I will build a bridge|We need a bridge}," said <hero>. <he> put {a branch|one '
            "stick} over the water. Splash! It {fell in|was swept away}.",
            '"{Try from both sides|I will begin here}," called <friend>. So <N> laid stones on '
            "one side, and <friend> laid stones on the other.",
            "They worked {all week|in sun and rain}. {Stone by stone|Bit by bit}, the bridge grew.",
        ),
        (
            'At last {they met in the middle|the two halves met}. "Hello!" they said, and '
            "{laughed|shook hands}.",
            "Now <hero> crosses the bridge every day, and {so does everyone else|nobody has to "
            "shout any more}.",
        ),
        "<who> and <a_friend> lived on two sides of a stream. They built a bridge from both "
        "sides and met in the middle.",
        "a stream kept <name> and <friend> apart.",
        "the bridge was finished, and <name> and <friend> met in the middle.",
        "Big works are done bit by bit, and together.",
        True,
    ),
)
