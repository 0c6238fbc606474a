"""The plots about a thing, a food, a vehicle, a place, an event or the sky, and someone in them.

Owns data alone; the notation and the slots are those of `plots`.
"""

from .plots import Plot

OBJECT_PLOTS: tuple[Plot, ...] = (
    Plot(
        (
            "One day <N> found <a_thing> {in the grass|beside the road}. {Nobody was near|It "
            "looked lonely there}.",
            '"{Whose is it|Somebody must miss it}," said <hero>. <he> {liked|loved} the <thing> '
            "very much, but it was not <his>.",
            '{<he> asked one, and <he> asked another|<he> knocked on every door}. "{Not mine|No, '
            'it is not mine}," they said.',
            "{At the last house|At the end of the road} sat <a_friend>, {looking sad|crying "
            'softly}. "I have lost my <thing>," said <friend>.',
            '"{Here it is|Is it this one}," said <N>, and held out the <thing>.',
        ),
        (
            '<friend> {laughed and cried at once|was so happy}. "{Let us use it together|You may '
            'come and see it every day}," said <friend>.',
            "So <hero> {lost a <thing>, but found a friend|went home with a friend}.",
        ),
        "<who> found <a_thing> and looked for the owner. It belonged to <friend>, and they "
        "became friends.",
        "<name> wanted to know who owned the <thing>.",
        "<friend> got the <thing> back, and they became friends.",
        "Give back what is not yours.",
    ),
    Plot(
        (
            "<N> had <a_thing> and {loved it|took good care of it}. One day, {crack|oh no}! The "
            "<thing> {broke|fell and broke}.",
            '"{My poor <thing>|It is my favorite thing}," {cried|sobbed} <hero>.',
            '"{Throw it away|Get a new one}," {some said|said the others}. But <N> shook <his> '
            "head.",
            "<he> took the <thing> to <a_friend>, who {could mend anything|was good with small "
            'things}. "{Let me see|Hm, let us try}," said <friend>.',
            "They worked {all afternoon|slowly and carefully}. {A little glue here, a little "
            "paint there|<N> held the pieces, and <friend> put them together}.",
        ),
        (
            'When it was done, the <thing> had {a small line|a tiny scar}. "{Now it has a '
            'story|I love it even more}," said <name>.',
            "And <hero> {kept it for ever|learned to mend things too}.",
        ),
        "<who> was sad because the <thing> broke. With <friend>, <he> mended it, and loved it "
        "even more.",
        "<name>'s <thing> broke.",
        "the <thing> was mended, and <name> loved it even more.",
        "Broken things can be mended, and loved even more.",
    ),
    Plot(
        (
            "Everywhere <N> went, the <thing> went too. But one {evening|rainy day}, the <thing> "
            "was gone!",
            "<hero> looked under the {bed|table}, {behind the door|in every corner}, and even in "
            "the {soup pot|flowerpot}. No <thing>!",
            '"{Where did you see it last|Think back to this morning}," said <a_friend>.',
            '<N> {closed <his> eyes|thought hard}. "{I was under the big tree|I was by the '
            'well}!" <he> said, and they ran there.',
            "{There it was|They looked around}. A tiny {mouse|bird} was {asleep beside the "
            "<thing>|using the <thing> as a house}!",
        ),
        (
            '"{Shh|Let it sleep}," whispered <hero>. {They waited until it woke up|They made a '
            "little bed for it}, and then <N> took the <thing> home.",
            "{After that <name> put it in the same place every night|And sometimes the little "
            "guest came to visit}.",
        ),
        "<who> lost the <thing> and looked everywhere. In the end it was found with a tiny guest "
        "beside it.",
        "<name> had lost the <thing>.",
        "<name> found the <thing> and took it home.",
        "Think calmly, and you will find what you lost.",
    ),
    Plot(
        (
            "<N> loved <his> <thing> and {never let anyone touch it|kept it all for <himself>}.",
            '"{May I try it|Can I have a turn}?" asked <a_friend>. "{No, it is mine|No}," said '
            "<hero>.",
            "So <N> sat with the <thing> all alone. {It was fun for a while|At first it was "
            "nice}. Then it was {dull|very quiet}.",
            "{Across the road|Not far away}, the others {laughed and sang|were playing}. <hero> "
            "looked at the <thing>, and then at them.",
            '<he> {stood up slowly|went over}. "{Do you want a turn now|Shall we share it}," '
            "said <N> to <friend>.",
        ),
        (
            "They {took turns|played together}, and the <thing> had never been so much fun!",
            '"{Sharing makes it better|It is twice as nice with two}," said <hero>.',
        ),
        "<who> did not want to share the <thing>, and was all alone. Then <he> shared it with "
        "<friend>, and it was much more fun.",
        "<name> did not want to share the <thing>.",
        "<name> shared the <thing>, and everyone had fun.",
        "Sharing makes everything twice as nice.",
    ),
    Plot(
        (
            "It was an old <thing>. It had belonged to <name>'s grandmother, and {she had told "
            "stories about it|it smelled of her kitchen}.",
            '"{Take good care of it|It is yours now}," {Grandma had said|she had told <him>}. So '
            "<hero> {kept it near|polished it every week}.",
            'One day <a_friend> {looked very sad|sat all alone}. "{I miss my home|I miss my '
            'family}," said <friend>.',
            '<N> put the <thing> between them. "{When I miss Grandma, I hold it|This helps me}," '
            '<he> said. "{Do you want to hear its story|Let me tell you about it}."',
            "{So <he> told it|<he> told it slowly}, and <friend> {listened|leaned closer}. {Then "
            "<friend> told a story too|Soon both of them were telling stories}.",
        ),
        (
            "{In the end they both smiled|The sad feeling grew smaller}.",
            '<hero> put the <thing> back {on the shelf|in its place}. "{It is full of '
            'stories|You can always come back}," said <N>.',
        ),
        "<who> had an old <thing> from <his> grandmother. With its story <he> comforted <friend>.",
        "<friend> was sad and far from home.",
        "<name> and <friend> told each other stories and smiled.",
        "A story shared can warm a sad heart.",
    ),
    Plot(
        (
            "It was no ordinary <thing>. {When <N> touched it, it began to glow|At midnight it "
            "began to hum}.",
            '"{I can do one good thing for you|Ask me for something}," {said a small voice|it '
            "whispered}. A <thing> that could talk!",
            "<hero> {rubbed <his> eyes|could not believe it}. {Toys? Sweets?|What should it be?}",
            "Outside it was very dry. {The flowers hung their heads|The pond was almost empty}, "
            "and <a_friend> was {thirsty|worried}.",
            '"{Please bring some rain|We need rain}," said <N> to the <thing>. {Plip, plop|Drip, '
            "drop}! {It began to rain|Dark clouds came}.",
        ),
        (
            "Everyone {danced in the rain|cheered}, and <friend> most of all.",
            "The <thing> never spoke again, but <hero> {kept it for ever|knew its secret, and "
            "smiled}.",
        ),
        "<who> had a magic <thing> that could do one good thing. <name> asked for rain, and "
        "everyone was happy.",
        "it was very dry, and everyone needed rain.",
        "the magic <thing> brought rain, and everyone was happy.",
        "Use what you have to help others.",
    ),
    Plot(
        (
            "<N> saw <a_thing> in the shop window. {It was the most beautiful <thing> in the "
            "world|How it shone}!",
            "<hero> {worked hard|swept floors and carried bags} and saved {coin after coin|every "
            "penny}.",
            "At last <he> had enough! But on the way to the shop <he> met <a_friend>, who {had "
            "lost the money for food|had no food at home}.",
            "<N> looked at {<his> coins|the coins in <his> hand}. <he> thought of the <thing>. "
            "Then <he> {gave them away|bought bread and soup instead}.",
            '{"Thank you," whispered <friend>.|<friend> could hardly speak.} They ate together, '
            "and <N> {was not sad at all|hardly thought of the shop}.",
        ),
        (
            "But the shopkeeper had seen it all. {The next day|That evening} there was a box at "
            "the door, and in it was the <thing>!",
            '"{For a kind heart|Kindness comes back}," said the note. <hero> {hugged the '
            "box|laughed for joy}.",
        ),
        "<who> saved money for <a_thing>, but gave it to <friend>, who needed food. The "
        "shopkeeper saw it and gave <him> the <thing>.",
        "<friend> needed food, and <name> had only the money for the <thing>.",
        "the shopkeeper gave <name> the <thing>.",
        "Kindness comes back to you.",
    ),
    Plot(
        (
            "One windy day, whoosh! The wind took the <thing> and {carried it up high|blew it "
            "away}.",
            'It {landed|got stuck} at the top of a tall tree. "{My <thing>|Come back}!" cried '
            "<hero>.",
            "<N> {jumped|reached}, but the tree was too tall. <he> {threw a stick|shook the "
            "tree}, but the <thing> did not {fall|move}.",
            '"{I can help|May I try}," said <a_friend>. "{Climb on my back|You hold the ladder, '
            'and I will climb}."',
            "{Up, up, up|Higher and higher}! {The tree shook|A branch creaked}, but they held on "
            "tight. {At last|Then} they had the <thing>!",
        ),
        (
            '"{Thank you|You are a true friend}," said <N>. "{Next time we will hold it '
            'together|Now let us have fun with it}," said <friend>.',
            "And that is what <hero> and <friend> did {until supper|all day}.",
        ),
        "The wind blew <name>'s <thing> to the top of a tree. <who> got it back with the help of "
        "<friend>.",
        "the wind blew the <thing> to the top of a tree.",
        "<name> and <friend> got the <thing> back from the tree.",
        "With a friend you can reach higher.",
    ),
)

VEHICLE_PLOTS: tuple[Plot, ...] = (
    Plot(
        (
            "<N> had an important job: to bring {medicine|warm blankets} to <a_friend>, who "
            "lived far away.",
            '"{Let us go|Here we go}!" said <hero>, and the <thing> {set off|began to move}.',
            "{Wind and rain came|It was a long way}. The <thing> {shook and creaked|slowed "
            'down}. "{You can do it, dear <thing>|Just a little farther}," said <N>.',
            "Then {something blocked the way|it grew very dark}. <hero> {did not give up|stayed "
            "calm}. <he> {found another way|lit a lamp}, and on they went.",
            "At last they saw a light. <friend> was {waiting|waving} at the window.",
        ),
        (
            '"{You came through all that|You made it}," said <friend>. "{My <thing> never gives '
            'up|We did it together}," said <N>.',
            "{They all drank something warm|That night everyone was safe}, and <hero> gave the "
            "<thing> a pat.",
        ),
        "<who> and <his> <thing> had to bring something important to <friend>. The way was hard, "
        "but they did not give up.",
        "the way to <friend> was long and hard.",
        "<name> and the <thing> reached <friend> in time.",
        "Do not give up when someone counts on you.",
    ),
    Plot(
        (
            'It was an old <thing>, {and its paint was gone|rusty and slow}. "{It is no '
            'good|Nobody needs it any more}," {people said|they said}.',
            "But <N> {liked the old <thing>|saw that it was a good <thing>}. <he> {washed "
            "it|cleaned it} and painted it {red|blue} and {yellow|green}.",
            "<a_friend> {came to help|brought tools}. They worked {all week|for many days}, and "
            "{laughed a lot|sang while they worked}.",
            "{Then it was time|On Sunday it was ready}. <hero> {held <his> breath|closed <his> "
            "eyes}. {Click, clack, hum|Creak, bump, whoosh}! The <thing> was moving!",
            '"{Hurray|It works}!" {shouted|cried} <friend>.',
        ),
        (
            "Now everyone wanted a ride in the old <thing>. {<N> let all of them have a "
            'turn|"One at a time," said <N>}.',
            "And {the <thing> was happy too, as far as anyone could tell|<hero> was never too "
            "tired for one more trip}.",
        ),
        "<who> found an old <thing> that nobody wanted. With <friend>, <he> repaired it, and "
        "then everyone wanted a ride.",
        "the <thing> was old and nobody wanted it.",
        "the old <thing> worked again, and everyone wanted a ride.",
        "Old things can still be good.",
    ),
    Plot(
        (
            "One day <N> and <a_friend> went on a trip with the <thing>. {The sun was "
            "shining|They had sandwiches with them}.",
            "{Suddenly|Halfway there}, the <thing> stopped. {It would not go|Not one inch "
            "farther}!",
            '"{What now|Oh dear}," said <friend>. <hero> {looked at the front, and looked at the '
            "back|checked every part of the <thing>}.",
            '"{I see|Look here}," said <N>. A {family of ducks|tiny turtle} was '
            "{resting|sitting} right in the way!",
            '"{The <thing> is cleverer than we are|Good old <thing>}," said <hero>. They '
            "{waited|sat down and waited} until the little ones were safe.",
        ),
        (
            "Then the <thing> {went on|started again} as if nothing had happened.",
            '"{It was a short trip, but a good one|We did not get far, but it was a nice day}," '
            "said <friend>. <hero> {thought so too|nodded}.",
        ),
        "<who> and <friend> went on a trip, but the <thing> stopped. Little animals were in the "
        "way, so they waited until all were safe.",
        "the <thing> stopped and would not go.",
        "the little animals were safe and the <thing> went on.",
        "It is good to stop and look.",
    ),
)

FOOD_PLOTS: tuple[Plot, ...] = (
    Plot(
        (
            "One morning <N> had <a_thing>. {It smelled wonderful|It looked so good}!",
            "<he> wanted to eat it all alone. {But then|Just then} <a_friend> {came by|knocked "
            'at the door}. "{What smells so good|Is that <a_thing>}?"',
            "<hero> looked at the <thing>. {There was only a little|It was not very big}. "
            '"{Would you like some|Shall we share it}," <he> said.',
            "{They sat down|They had just sat down}, when another guest came, and then one more. "
            "<N> {shared|cut and cut} until everyone had some <things>.",
            "{There was only a tiny bit left for <him>|<hero> got the smallest piece of all}.",
        ),
        (
            "But {everyone talked and laughed|they told jokes and stories}, and {it tasted "
            "better than ever|that tiny bit was the best <he> ever ate}.",
            'The next day <friend> came back with more <things>. "{Now it is my turn to '
            'share|This is for you}," said <friend>, and <N> smiled.',
        ),
        "<who> had <a_thing> and shared it with all the guests. The next day <friend> brought "
        "more.",
        "<name> had only a little <thing>, and many guests came.",
        "<name> shared the <thing>, and the next day <friend> brought more.",
        "Food tastes best when it is shared.",
    ),
    Plot(
        (
            "<N> put <a_thing> {on the table|by the window} and went {to wash <his> "
            "face|outside}. When <he> came back, the <thing> was gone!",
            '"{Who took it|A thief}!" said <hero>. {<he> looked for clues|There were crumbs and '
            "drops on the floor}.",
            "<he> followed {the trail|them} {out of the door|around the house}, {under the "
            "fence|past the well}, to a little hole.",
            'In the hole sat <a_friend> {with a full mouth|with sticky whiskers}. "{I am sorry|I '
            'was so hungry}," said <friend>. "I have not eaten for two days."',
            '<N> {was angry for a moment|frowned}. Then <he> {felt sorry|sat down}. "{You could '
            'have asked|Next time, just ask}," <he> said.',
        ),
        (
            "Together they got more <things>, {and even more|enough for both}.",
            "After that, <hero> always {set two plates|made some <things> for <friend>}. {It is "
            "nicer to eat with a friend.|And nobody had to take anything.}",
        ),
        "<who> had <a_thing>, but someone took it. It was <friend>, who was hungry, so they got "
        "more together.",
        "someone took the <thing>.",
        "<name> forgave <friend>, and they got more <things> together.",
        "Ask, and a friend will share.",
    ),
    Plot(
        (
            '<N> had never made <a_thing> before. "{How hard can it be|I will try it today}," '
            "<he> said.",
            "{Oh, what a mess|Splash and crash}! {There was flour on the floor|Everything was "
            "sticky}, and the first <thing> tasted of {salt|soap}.",
            '"{What happened here|Do you need help}?" asked <a_friend>. <hero> {sighed|hung '
            '<his> head}. "{I cannot do it|My <thing> is no good}."',
            '"{My first one was terrible too|Every cook begins like that}," said <friend>. '
            '"{Slowly now|First we read, then we stir}."',
            "They {stirred and tasted|washed and mixed}, and {soon the kitchen smelled "
            "good|little by little it came right}.",
        ),
        (
            "This time the <thing> was {perfect|just right}! <hero> {could not stop smiling|took "
            "it to all the neighbors}.",
            '"{Tomorrow I will teach someone else|Thank you for your help}," said <N>.',
        ),
        "<who> tried to make <a_thing> and it went wrong. <friend> helped <him>, and the next "
        "one was just right.",
        "the first <thing> that <name> made went wrong.",
        "with the help of <friend>, <name> made a good <thing>.",
        "Nobody is a master at first.",
    ),
    Plot(
        (
            "There was a contest at the fair: who would bring the best food? <N> {wanted to "
            "bring|brought} <a_thing>.",
            "The others had {huge and fancy things|towers of sugar}. {<hero> looked at the plain "
            "<thing> and felt small|Next to them, the <thing> looked very plain}.",
            '"{I should go home|I cannot win with this}," said <N>. "{Stay|Wait}," said '
            '<a_friend>. "{You made it with love|I like yours best}."',
            "The {judge|old judge} tasted one thing after another. {Too sweet|Too dry}. {Too "
            "sour|Too hard}. Then came the <thing> of <hero>.",
            'The judge {closed her eyes|smiled}. "{This tastes like home|Simple and good}," she '
            "said.",
        ),
        (
            '<N> won {the blue ribbon|first prize}! {<friend> clapped the loudest|"I knew it!" '
            "said <friend>}.",
            "Then everyone had some <things>, and <hero> {was very happy|could not stop smiling}.",
        ),
        "<who> brought <a_thing> to a contest and was afraid to lose. But it was made with love, "
        "and it won.",
        "<name> thought that <his> <thing> was too plain to win.",
        "<name>'s <thing> won first prize.",
        "Simple things made with love are the best.",
    ),
)

PLACE_PLOTS: tuple[Plot, ...] = (
    Plot(
        (
            '<N> {was a little afraid of|had heard many things about} the <thing>. "{What if it '
            'is too big|What if I do not like it}," said <hero>.',
            '"{I will go with you|Hold on to me}," said <a_friend>. So they went {hand in '
            "hand|together} {to see the <thing>|all the way there}.",
            "{At first|When they came closer}, everything was {strange|new}. {There were new "
            "sounds|There were new smells} and {new colors|many things to see}.",
            '<N> {looked here and looked there|took one step, and then one more}. "{Oh, look at '
            'that|How lovely}!" <he> said. <he> forgot to be afraid.',
            "They {explored|looked at} every corner of the <thing>, {and found a golden leaf|and "
            "made up a game}.",
        ),
        (
            'When it was time to leave, <hero> {did not want to go|looked back}. "{Can we come '
            'again tomorrow|We must come again}," said <N>.',
            "And they did. The <thing> was now {<his> favorite place|the place <he> loved most}.",
        ),
        "<who> was afraid to visit the <thing>. <friend> went along, and it became <his> "
        "favorite place.",
        "<name> was afraid of the <thing>.",
        "the <thing> became <name>'s favorite place.",
        "New places are less scary with a friend.",
    ),
    Plot(
        (
            "One day <N> {came to|went to} the <thing> and {stopped|stood still}. {There was "
            "trash everywhere|How dirty it was}!",
            '"{Who did this to our <thing>|Our poor <thing>}," said <hero>. {Nobody came there '
            "any more|Even the birds had left}.",
            '<he> {took a bag|rolled up <his> sleeves} and began to clean. "{You will never '
            'finish|It is too much for one}," said <a_friend>.',
            '"{Not alone|Then help me}," said <N>. <friend> {thought for a moment|laughed}, and '
            "{picked up a bottle|took a broom}.",
            "{Others saw it|Then a third one came}, and {they helped too|soon there were ten}. "
            "They cleaned {all day long|until evening}.",
        ),
        (
            "Now the <thing> {shone|was clean and lovely} again. {The birds came back|Music and "
            "laughing came back}.",
            '"{One can start|It only needs one to begin}," said <hero>, {tired and happy|and '
            "everyone cheered}.",
        ),
        "<who> found the <thing> dirty and began to clean it. Others came to help, and it was "
        "lovely again.",
        "the <thing> was dirty, and nobody came there any more.",
        "everyone helped, and the <thing> was clean and lovely again.",
        "One can start, and many can finish.",
    ),
    Plot(
        (
            "<N> knew every corner of the <thing>. At least, <he> thought so.",
            "One day <he> saw {a tiny green door|a small opening}. {It had never been there "
            'before|How strange}! "{Who made this|Where does it lead}," said <hero>.',
            "<he> {knocked three times|gave a little knock}. The door opened, and there was "
            "<a_friend> {with a lamp|in slippers}.",
            '"{You found me|At last a visitor}!" said <friend>. "{I take care of the <thing> at '
            'night|I keep the secrets of the <thing>}."',
            "<N> {sat down|was given a cup of tea}, and <friend> told {old stories|all that the "
            "<thing> had seen}.",
        ),
        (
            "When <hero> came out again, {it was evening|the moon was up}, and the little door "
            "was {gone|closed}.",
            "But {whenever <N> came to the <thing>, <he> knocked|now and then}, {and sometimes "
            "someone knocked back|<he> could hear a happy little laugh}.",
        ),
        "<who> found a tiny door in the <thing>. Behind it lived <friend>, who told <him> old "
        "stories.",
        "<name> wanted to know where the tiny door led.",
        "the little door was closed, but <name> had made a secret friend.",
        "There is always something new to find.",
    ),
    Plot(
        (
            "One day the <thing> was {full of visitors|very crowded}, and <N> {let go of <his> "
            "mother's hand|looked at something too long}.",
            "When <he> turned around, {everyone <he> knew was gone|<he> saw only strangers}. "
            "<hero> was lost at the <thing>!",
            '<his> lip shook. Then <he> {remembered a rule|thought of a rule}: "Stay where you '
            'are and ask for help."',
            "{Beside the gate|Not far away} stood <a_friend> {with a kind face|with a big hat}. "
            '"{Please, I am lost|Can you help me}," said <N>.',
            '"{Well done for asking|Of course}," said <friend>. {They waited together|They '
            "called <his> name and waited}, and <N> {told a joke|counted the clouds}.",
        ),
        (
            'Soon <name>\'s mother {came running|was there}. "{There you are|I was so worried}!" '
            "she said and {hugged <him>|held <him> tight}.",
            '"{I did not run away|I asked for help}," said <hero>. They thanked <friend> and '
            "{saw the rest of the <thing>|had a treat} together.",
        ),
        "<who> got lost at the <thing>. <he> asked <friend> for help, and soon <his> mother was "
        "there.",
        "<name> got lost at the <thing>.",
        "<name>'s mother came and hugged <him>.",
        "When you are lost, stay where you are and ask for help.",
    ),
)

EVENT_PLOTS: tuple[Plot, ...] = (
    Plot(
        (
            "{All week|For days} <N> had {looked forward|counted the hours} to the <thing>. "
            "{Everything was ready|The sky was blue}.",
            'Then {a fat gray cloud came|it began to rain}. {Drip, drop|Splash}! "{Oh no, our '
            '<thing>|The <thing> is ruined}," cried <hero>.',
            '"{Is it|Who says so}," said <a_friend>. "{We can have it in the barn|We have a big '
            'dry barn}!"',
            "Everyone {carried|brought} {lamps and chairs|something}. <N> {hung up paper "
            'stars|made a sign}. "{Welcome to the <thing>|Come in}!" it said.',
            "Rain {drummed|sang} on the roof, and {they danced to it|inside it was warm and "
            "bright}.",
        ),
        (
            '"{This is the best <thing> ever|Rain made it better}," said <hero>, and <friend> '
            "{laughed|agreed}.",
            "They {still talk about that <thing>|went home late, happy and tired}.",
        ),
        "<who> looked forward to the <thing>, but it rained. They had it in a barn, and it was "
        "the best <thing> ever.",
        "it rained on the day of the <thing>.",
        "they had the <thing> in a barn, and it was the best ever.",
        "A little rain cannot stop happy hearts.",
    ),
    Plot(
        (
            "Everyone was talking about the <thing>. {Everyone, but not the new one in town|Only "
            "one did not smile}: <a_friend>.",
            '"{Nobody asked me|I do not know anyone}," said <friend> {quietly|with a sigh}. <N> '
            "heard it.",
            '"{Then I ask you|Come with me}," said <hero>. "{The <thing> is for everyone|There '
            'is room for all of us}!"',
            "{At first <friend> stood by the wall|At the <thing>, <friend> was very quiet}. <N> "
            "{told the others the new name|stayed close}.",
            'Then something went wrong: {the music stopped|the lights went out}. "{I can fix '
            'it|I know what to do}," said <friend>, and {in a minute|one, two, three,} it was '
            "done!",
        ),
        (
            '"{Hurray|What would we do without you}!" everyone cried. {<friend> smiled for the '
            "first time|Now everyone wanted to know <friend>}.",
            '"{I am glad that I asked you|You saved the <thing>}," said <hero>.',
        ),
        "<who> invited <friend>, who was new in town, to the <thing>. When something went wrong "
        "there, <friend> saved the day.",
        "<friend> was new in town, and nobody had invited the newcomer.",
        "<friend> saved the <thing> and found many friends.",
        "Make room for someone new.",
    ),
    Plot(
        (
            "<N> had a part in the <thing>, {and it was a big one|but only a very small one}. "
            "{<his> knees shook|<he> had butterflies in <his> tummy}.",
            '"{What if I do it wrong|What if everyone looks at me}," said <hero>.',
            '"{Look at me and nobody else|I will be in the first row}," said <a_friend>. '
            '"{Breathe in, breathe out|Take three deep breaths}."',
            "The <thing> began. {One, two, three breaths|In and out, in and out}. <N> {stepped "
            "forward|looked at <friend>} and {began|did <his> part}.",
            "{There was one small mistake|Once <he> forgot what came next}, but <he> {smiled and "
            "went on|laughed, and so did everyone}.",
        ),
        (
            '{Clap, clap, clap|How they cheered}! "{I did it|It was fun}," said <hero> to '
            "<friend>.",
            '{"When is the next <thing>?" asked <N>.|<N> could hardly wait for the next <thing>.}',
        ),
        "<who> was afraid of <his> part in the <thing>. <friend> helped <him> to be calm, and "
        "everyone cheered.",
        "<name> was afraid of <his> part in the <thing>.",
        "<name> did well in the <thing>, and everyone cheered.",
        "Being brave means going on although your knees shake.",
    ),
)

SKY_PLOTS: tuple[Plot, ...] = (
    Plot(
        (
            '<N> {loved|often looked at} <the_thing>. "{I want to touch it|I wish I could have '
            'it for myself}," <he> said.',
            "<hero> {climbed the highest hill|stood on a chair, on a table}. {It was still too "
            "far|It was no use}. <he> {made a long net|jumped as high as <he> could}. {No "
            "luck|Bump}!",
            '"{What are you doing up there|Why do you jump}," asked <a_friend>. "{I want to '
            'catch|I want to keep} <the_thing>," said <N>.',
            '<friend> {smiled|thought about it}. "{If you kept it in a box, nobody else could '
            'see it|Some things belong to everyone}," said <friend>.',
            "<hero> {thought about that|was quiet for a while}. How "
            "sad the others would be without <the_thing>!",
        ),
        (
            "So they {lay down in the grass|sat side by side} and looked at <the_thing> together.",
            '"{It is mine, and yours, and everyone\'s|That is even better}," said <name>.',
        ),
        "<who> wanted to have <the_thing> for <himself>. <friend> said that some things belong "
        "to everyone, and so they looked at it together.",
        "<name> wanted to catch <the_thing>.",
        "<name> and <friend> looked at <the_thing> together.",
        "The most beautiful things belong to everyone.",
    ),
    Plot(
        (
            '{Every evening|Each day} <N> {said hello to|talked to} <the_thing>. "{How are '
            'you|Good evening}," <he> said. {There was no answer|It never answered}.',
            '"{Why do you talk to it|It cannot hear you}," said <a_friend>. "{Maybe it can|You '
            'never know}," said <hero>.',
            "One day <N> was {sad|ill} and stayed {inside|in bed}. {The window was small|The "
            'room was gray}. "{Today I cannot say hello|I miss you}," <he> whispered.',
            "Then {something moved at the window|it grew lighter}. {<friend> opened the "
            "curtain|<friend> pointed outside}. There was <the_thing>, {closer|more beautiful} "
            "than ever!",
            '"{Look, it came to see you|I think it did hear you}," said <friend>.',
        ),
        (
            "<hero> {smiled and waved|felt better at once}. {All night long|For a long time} <N> "
            "looked at <the_thing>.",
            "And {after that|from then on} both of them said hello to <the_thing>, every single "
            "day.",
        ),
        "<who> said hello to <the_thing> every day. When <name> was not well, <the_thing> seemed "
        "to come to the window.",
        "<name> was not well and could not go out to see <the_thing>.",
        "<name> and <friend> both said hello to <the_thing> every day.",
        "Be kind even to those who cannot answer.",
    ),
)
