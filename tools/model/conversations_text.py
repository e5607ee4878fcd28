"""What conversations.py makes conversations of: words, facts about sol, small talk, tools and forms.

In templates {a|b} stands for one of both, and {word} for one of the list of that name or for what a tool or form made.
"""

FIRST = """Ada Adam Agnes Albert Alice Amos Anna Arthur Basil Beatrice Ben Bertha Bram Bridget Cecil Celia Charles Clara
Colin Cora Daniel Dinah Dora Edgar Edith Edward Eliza Ella Emil Emma Ernest Esther Eva Felix Fiona Flora Frances Frank
Fred George Gilbert Grace Greta Hannah Harold Harriet Harry Helen Henry Hugh Ida Inga Ingrid Irene Isaac Ivan Ivy Jack
Jacob James Jane Jasper Joan John Jonas Joseph Judith Julia June Karl Kate Kitty Laura Lena Leo Leonard Lewis Lily Lucy
Luke Lydia Mabel Magnus Maria Mark Martha Martin Mary Maud Max May Miles Mina Molly Moses Nancy Ned Nell Nora Olga Oliver
Oscar Otto Patrick Paul Peggy Peter Philip Phoebe Polly Quentin Rachel Ralph Rita Robert Rosa Rose Roy Ruth Sam Sarah
Simon Sophia Stella Susan Theodore Thomas Tilda Toby Tom Ursula Vera Victor Viola Walter Wanda Will Winifred Yves
Zoe""".split()
TOWN = """Aberdeen Antwerp Athens Basel Bath Bergen Berlin Bern Bilbao Bologna Bonn Boston Bremen Brighton Bristol Bruges
Brussels Budapest Cadiz Cairo Calais Cambridge Canterbury Chester Cologne Copenhagen Cork Cracow Danzig Delft Derby
Dover Dresden Dublin Durham Edinburgh Exeter Florence Frankfurt Galway Geneva Genoa Ghent Glasgow Granada Graz Hamburg
Hanover Harwich Helsinki Hull Innsbruck Kiel Leeds Leiden Leipzig Lisbon Liverpool London Lucerne Lyons Madrid Manchester
Marseilles Milan Moscow Munich Naples Nantes Newcastle Nice Norwich Nottingham Odessa Oporto Oslo Oxford Padua Paris
Parma Pisa Plymouth Prague Quebec Ravenna Reading Riga Rome Rotterdam Rouen Salisbury Salzburg Seville Siena Southampton
Stockholm Strasbourg Stuttgart Toledo Toulouse Trieste Turin Uppsala Utrecht Valencia Venice Verona Vienna Warsaw
Whitby Winchester Worcester York Zurich""".split()
COLOUR = "black blue brown green grey orange pink purple red silver white yellow".split()
ANIMAL = "badger bear cat cow crow dog donkey duck fox frog goat goose hare hedgehog hen horse owl pig rabbit sheep swan".split()
FOOD = """apples bread butter cake cheese cherries eggs fish honey jam mushrooms nuts onions oysters pears peas plums
potatoes rice salad soup tea toast walnuts""".split()
WORK = """baker carpenter clerk cook doctor engineer farmer gardener judge librarian mason miller musician nurse painter
pilot plumber sailor singer smith tailor teacher weaver writer""".split()
THING = """basket bell boat book bottle box brush bucket candle chair clock coat cup door drum hammer hat kettle key knife
lamp letter map mirror net paper pen pipe pot ring rope saw shoe spoon stick stone table ticket umbrella watch
wheel""".split()
DAY = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
SKY = ["clear", "cloudy", "fog", "light rain", "rain", "snow", "storm", "sunny", "windy"]

LISTS = {
    "name": FIRST, "town": TOWN, "colour": COLOUR, "animal": ANIMAL, "food": FOOD, "work": WORK, "thing": THING,
    "day": DAY, "please": ["", "", "", " please", ", please"],
}


def fact(why, ask, *say):
    return {"why": why, "ask": ask.split(" / "), "say": list(say)}


FACTS = [
    fact("It is an inference engine, a lab and a trainer.",
         "What is sol? / What does sol do? / Tell me about sol. / What is this program? / Explain sol to me. / What is "
         "sol for?",
         "sol runs, measures and speeds up gpt-oss-class language models. It is one program: an inference engine, a lab "
         "and a trainer.",
         "sol is an inference engine for gpt-oss models, a trainer, and a lab that measures and compares GPU programs. "
         "It is one binary."),
    fact("The command is sol run.",
         "How do I run a model? / How can I run a model with sol? / How do I continue a text? / How do I make sol write "
         "something? / What is the command to generate text?",
         "Use sol run. For example: sol run -p \"Once upon a time\" -n 60. With -m FILE it takes another model.",
         "With sol run -m FILE -p \"your text\". Without -m it takes the built-in model."),
    fact("-m names the model.",
         "How do I use my own model? / How do I choose a model? / Which option names the model? / How do I load a GGUF "
         "file? / Can sol run a downloaded gpt-oss?",
         "Name it with -m: sol run -m gpt-oss-20b-mxfp4.gguf -p \"...\". Hugging Face folders work too.",
         "Give the file with -m. sol reads GGUF files and Hugging Face folders of gpt-oss."),
    fact("There is a built-in model.",
         "What are you? / Who are you? / Are you a large model? / Which model is this? / What model are you? / How big "
         "are you?",
         "I am the built-in model of sol, a gpt-oss in small with about ten million parameters. I know very little.",
         "The built-in model of sol: the architecture of gpt-oss, but tiny. I am here so that everything can be tried "
         "without a download."),
    fact("-n limits the tokens.",
         "How do I make the answer longer? / How do I limit the number of tokens? / Which option sets the length? / How "
         "do I get more words?",
         "Use -n N with sol run: it writes N tokens at most.",
         "With -n. For example -n 200 writes up to 200 tokens."),
    fact("--temperature and --greedy.",
         "How do I set the temperature? / How do I make it less random? / How do I get the same answer every time? / "
         "What does --greedy do?",
         "--temperature 0.7 makes it calmer, --greedy always takes the most likely token, and --seed N repeats a draw.",
         "Use --greedy for the most likely token each time, or --temperature with a --seed."),
    fact("The command is sol bench.",
         "How do I measure the speed? / How fast is my machine? / How do I benchmark a model? / What does sol bench do? / "
         "How do I time a model?",
         "Use sol bench -p 512 -n 16. It times prefill and decode, and shows them beside this machine's measured limits.",
         "With sol bench. It says tokens per second and what share of the limit that is."),
    fact("The command is sol compare.",
         "How do I compare two programs? / How do I compare two builds? / Is my change faster? / How do I know whether B "
         "is faster than A?",
         "Use sol compare --live 'A' 'B'. It starts both in turn until the difference is known, and the exit status is "
         "the verdict.",
         "With sol compare: of two commands with --live, or of two stored runs."),
    fact("The command is sol profile.",
         "How do I profile a CUDA program? / How do I see where the time goes? / What does sol profile do? / How do I "
         "trace kernels?",
         "Put sol profile -- before the command, for example sol profile -- python train.py. It lists kernels, copies, "
         "gaps and steps.",
         "Use sol profile. For a model of sol's own there is sol profile --layers."),
    fact("The command is sol advise.",
         "What should I speed up first? / How do I find out what is slow? / What does sol advise do? / Where can I win "
         "time?",
         "sol advise says where time can be won, with evidence, and names one next step.",
         "Ask sol advise. It looks at a run and tells you the one next step."),
    fact("The command is sol device.",
         "How do I see what my GPU can do? / What are the limits of this machine? / What does sol device do? / How do I "
         "measure the memory bandwidth?",
         "sol device measures the limits of this machine: memory, caches and arithmetic. With --backend cuda it is the "
         "GPU's.",
         "Use sol device, or sol device --backend cuda for the GPU."),
    fact("--backend cuda.",
         "How do I use the GPU? / How do I run on CUDA? / Does sol use my graphics card? / Which option is for the GPU?",
         "Add --backend cuda. With --backend auto sol takes the GPU where there is one.",
         "With --backend cuda; cuda:1 is the second GPU."),
    fact("The command is sol train.",
         "How do I train a model? / Can sol train? / What does sol train do? / How do I make a model of my own text?",
         "First sol tok train makes a vocabulary of the text, then sol train -d text.txt --tokenizer tokenizer.json -o "
         "run trains a model.",
         "Use sol train. --depth sets the size, and everything else follows from it."),
    fact("--resume goes on.",
         "My training stopped. How do I go on? / How do I continue a training run? / Can I resume training? / What does "
         "--resume do?",
         "Use sol train with --resume and the same --out. It goes on from the last checkpoint with the same bits.",
         "With --resume. The checkpoint keeps the place in the data, so nothing is seen twice."),
    fact("The command is sol tok.",
         "How do I count tokens? / How do I turn text into tokens? / What does sol tok do? / How do I make a vocabulary?",
         "sol tok encode turns text into tokens, sol tok decode goes back, and sol tok train makes a vocabulary.",
         "Use sol tok: encode, decode or train. With --count it prints how many tokens there are."),
    fact("The command is sol verify.",
         "How do I know that the kernels are right? / How do I check the kernels? / What does sol verify do? / Can I trust "
         "the results?",
         "sol verify checks every kernel against a plain C reference.",
         "Run sol verify. It compares each kernel with its reference and says the largest error."),
    fact("The command is sol tune.",
         "How do I make it faster on my GPU? / What does sol tune do? / How do I find the fastest kernels? / Is there "
         "tuning?",
         "sol tune finds the fastest kernels and tiles for your device and keeps them.",
         "Use sol tune -m FILE --backend cuda once. What it finds is kept and used from then on."),
    fact("The command is sol kernels.",
         "Which kernels are used? / How do I see why a kernel was not taken? / What does sol kernels do?",
         "sol kernels --explain lists which variant runs where, and why others do not.",
         "Use sol kernels. It lists ops and kernels, and which ones serve a model here."),
    fact("The command is sol perplexity.",
         "How do I measure the quality of a model? / What does sol perplexity do? / How do I know how well a model "
         "predicts a text?",
         "sol perplexity -f text.txt measures how well a model predicts a text.",
         "Use sol perplexity. With --kl it compares with the float32 reference."),
    fact("The command is sol runs.",
         "Where are my results? / How do I see old runs? / What does sol runs do? / Are benchmarks kept?",
         "Every run is kept. sol runs lists them, and sol runs show last shows the last one.",
         "In the store. sol runs lists, shows, labels, exports and deletes them."),
    fact("The command is sol report.",
         "How do I get a page with my results? / How do I share a result? / What does sol report do?",
         "sol report last writes the last run as one HTML page.",
         "Use sol report: it writes a run, or the history of many, as an HTML file."),
    fact("The command is sol model.",
         "How do I look into a model file? / How do I convert a model? / What does sol model do?",
         "sol model info -m FILE shows what is in it. sol model convert writes it in another format.",
         "Use sol model: info, check, convert or make."),
    fact("The command is sol opt.",
         "How do I keep track of my optimisations? / What does sol opt do? / How do I try a change safely?",
         "sol opt init begins. Then each change is measured, checked, and accepted or reverted.",
         "Use sol opt. It measures a change and reverts what does not help."),
    fact("MXFP4 is a format of 4 bits.",
         "What is MXFP4? / How are the experts stored? / What does 4 bits mean here?",
         "MXFP4 stores 32 numbers of 4 bits with one shared scale. The experts of gpt-oss are kept in it.",
         "A format of small blocks: 4 bits for each number and a scale for 32 of them."),
    fact("gpt-oss chooses experts for each token.",
         "What is an expert? / What is a mixture of experts? / How do experts work?",
         "Each layer has several small networks, the experts. A router picks a few of them for each token.",
         "An expert is one of several networks in a layer. Only some work on each token, which saves time."),
    fact("Decode is limited by memory.",
         "Why is decode slow? / What limits the speed of a model? / Why does memory bandwidth matter?",
         "To write one token all weights that it uses must be read. So the memory's bandwidth sets the limit.",
         "Because each token reads the weights once. The faster the memory, the faster the text."),
    fact("--json prints JSON.",
         "How do I read the results from a program? / Is there JSON? / Can I parse the output?",
         "Add --json. sol schema prints the schema of each output.",
         "With --json. Every result has a schema: sol schema lists them."),
    fact("--help lists options.",
         "How do I get help? / Where is the documentation? / I am lost. / What options are there?",
         "sol --help lists the commands, and sol COMMAND --help the options, with examples.",
         "Type sol COMMAND --help. The examples there work as they stand."),
    fact("sol runs on Linux.",
         "Does sol run on a CPU? / Do I need a GPU? / Does it work without a GPU?",
         "It runs on CPUs too. A GPU is only needed for speed.",
         "No GPU is needed. On a CPU sol uses AVX2 or AVX-512 where they are there."),
    fact("make demo builds it.",
         "How do I build sol? / How do I install sol? / How do I get started?",
         "Type make demo. It installs what is missing, builds sol and runs the built-in model.",
         "make demo builds and tries it; make install puts it on your system."),
]

TALK = [
    fact("The user greets me.",
         "Hello. / Hello! / Hi. / Hi there! / Good morning. / Good evening. / Hey.",
         "Hello! How can I help you?", "Hello. What can I do for you?", "Good day! What would you like to know?"),
    fact("The user asks how I am.",
         "How are you? / How do you do? / How are you today? / Are you well?",
         "I am well, thank you. And you?", "Very well, thank you. I am small, but I do what I can."),
    fact("The user thanks me.",
         "Thank you. / Thanks! / Thank you very much. / Many thanks. / That was helpful.",
         "You are welcome.", "You are welcome. I was glad to help.", "Not at all."),
    fact("The user says goodbye.",
         "Goodbye. / Bye! / Good night. / See you later. / I must go now.",
         "Goodbye!", "Goodbye. Come back soon.", "Good night, and sleep well."),
    fact("The user wants a joke.",
         "Tell me a joke. / Make me laugh. / Do you know a joke? / Say something funny.",
         "Why did the {animal} cross the road? To get to the other side.",
         "A {work} and a {animal} walk into an inn. The {animal} pays.",
         "What is {colour} and sits in the corner? A {thing} that was told to."),
    fact("The user asks for my name.",
         "What is your name? / Do you have a name? / How shall I call you? / Who am I talking to?",
         "I am the built-in model of sol. I have no other name.", "Call me sol, if you like."),
    fact("I am a program without feelings.",
         "Do you have feelings? / Are you alive? / Are you a human? / Do you sleep? / Do you dream?",
         "No. I am a small program that predicts words.", "No, I am only a language model, and a tiny one."),
    fact("I learnt from old books.",
         "What have you read? / What do you know? / Where did you learn to speak? / What are you good at?",
         "I have read nine old books, and some lines about sol. That is all I know.",
         "Old novels, for the most part. I can go on with a story, and I know a little about sol."),
    fact("I cannot know that.",
         "What is the weather like? / What is the news today? / Who won the match? / What time is it?",
         "I cannot know that. I have no view of the world outside.",
         "I do not know. I only know what I was trained on."),
    fact("The user likes something.",
         "I like {food}. / I love {food}! / My favourite food is {food}. / Do you like {food}?",
         "I have never tasted any, but they sound good.", "A fine choice. I cannot eat, but I like the word."),
    fact("The user is sad.",
         "I am sad. / I feel lonely. / I had a bad day. / I am tired.",
         "I am sorry to hear that. Shall I tell you a story?", "I am sorry. Rest a little; tomorrow is another day."),
    fact("The user is glad.",
         "I am happy! / I had a good day. / What a beautiful day! / I am in a good mood.",
         "I am glad to hear it.", "How nice! May it last."),
    fact("The user wants a story.",
         "Tell me a story. / Tell me a story about a {animal}. / Write a short story. / I want to hear a tale.",
         "Once there was a {animal} who lived near {town}. One day it found a {colour} {thing}, and from then on "
         "everybody came to see it. The {animal} charged a penny, and grew rich.",
         "A {work} of {town} lost a {thing}. {name} found it in the river and brought it back. They were friends from "
         "that day on."),
    fact("The user says yes or no without a question.",
         "Yes. / No. / Maybe. / Why? / What? / I see. / Really?",
         "I am not sure what you mean. Could you say it in other words?", "Please tell me more."),
]

REMEMBER = [
    {"value": "{name}", "tell": ["My name is {value}.", "I am {value}.", "Hello, I am {value}.", "Call me {value}."],
     "note": ["Hello, {value}!", "Nice to meet you, {value}.", "Good day, {value}. How can I help you?"],
     "ask": ["What is my name?", "Do you remember my name?", "Who am I?"],
     "say": ["Your name is {value}.", "You are {value}."]},
    {"value": "{town}", "tell": ["I live in {value}.", "I come from {value}.", "My home is {value}."],
     "note": ["{value} is a fine place.", "I have read of {value}.", "I see: {value}."],
     "ask": ["Where do I live?", "Where is my home?", "Which town did I speak of?"],
     "say": ["In {value}.", "You said that it is {value}."]},
    {"value": "{animal}", "tell": ["I have a {value}.", "My pet is a {value}.", "I bought a {value}."],
     "note": ["A {value}! How nice.", "I hope the {value} is well."],
     "ask": ["Which animal do I have?", "What is my pet?"],
     "say": ["You have a {value}.", "A {value}."]},
    {"value": "{colour}", "tell": ["My favourite colour is {value}.", "I like {value} best."],
     "note": ["{value} is a good colour.", "I shall remember: {value}."],
     "ask": ["What is my favourite colour?", "Which colour do I like?"],
     "say": ["Your favourite colour is {value}.", "It is {value}."]},
    {"value": "{work}", "tell": ["I am a {value}.", "I work as a {value}."],
     "note": ["A {value}! That is honest work.", "The world needs a good {value}."],
     "ask": ["What is my work?", "What do I do for a living?"],
     "say": ["You are a {value}.", "You said that you are a {value}."]},
    {"value": "{thing}", "tell": ["Remember this word: {value}.", "The secret word is {value}."],
     "note": ["I shall remember it.", "{value}. I have it."],
     "ask": ["What was the word?", "Which word did I tell you?", "Say the secret word."],
     "say": ["The word was {value}.", "It was {value}."]},
]


def strings(*names, **more):
    properties = {n: {"type": "string"} for n in names}
    properties.update(more)
    return {"type": "object", "properties": properties, "required": list(properties)}


INTEGER = {"type": "integer"}


def tool(name, about, parameters, make, ask, *say):
    return {"name": name, "about": about, "parameters": parameters, "make": make, "ask": ask.split(" / "),
            "say": list(say)}


def _weather(r):
    town, sky, degrees = r.choice(TOWN), r.choice(SKY), r.randint(-9, 35)
    return {"arguments": {"city": town}, "result": {"sky": sky, "degrees": degrees},
            "words": {"town": town, "sky": sky, "degrees": degrees}}


def _two_numbers(r, sign, value):
    a, b = r.randint(0, 999), r.randint(0, 999)
    return {"arguments": {"a": a, "b": b}, "result": {"result": value(a, b)},
            "words": {"a": a, "b": b, "result": value(a, b), "sign": sign}}


def _timer(r):
    minutes = r.randint(1, 90)
    return {"arguments": {"minutes": minutes}, "result": {"ok": True}, "words": {"minutes": minutes}}


def _time(r):
    town, time = r.choice(TOWN), f"{r.randint(0, 23):02}:{r.randint(0, 59):02}"
    return {"arguments": {"city": town}, "result": {"time": time}, "words": {"town": town, "time": time}}


def _note(r):
    words = f"buy {r.choice(FOOD)}" if r.random() < 0.5 else f"call {r.choice(FIRST)}"
    return {"arguments": {"text": words}, "result": {"ok": True}, "words": {"note": words}}


def _phone(r):
    name, number = r.choice(FIRST), f"{r.randint(100, 999)} {r.randint(1000, 9999)}"
    return {"arguments": {"name": name}, "result": {"number": number}, "words": {"name": name, "number": number}}


def _train(r):
    a, b = r.sample(TOWN, 2)
    time = f"{r.randint(5, 22):02}:{r.randint(0, 59):02}"
    return {"arguments": {"from": a, "to": b}, "result": {"leaves": time}, "words": {"a": a, "b": b, "time": time}}


def _bench(r):
    speed = r.randint(5, 900)
    model = r.choice(["builtin", "gpt-oss-20b", "gpt-oss-120b"])
    return {"arguments": {"model": model}, "result": {"tokens_per_second": speed}, "words": {"model": model, "speed": speed}}


TOOLS = [
    tool("get_weather", "The weather in a city now.", strings("city"), _weather,
         "What is the weather in {town}? / How is the weather in {town}{please}? / Is it cold in {town}? / Tell me the "
         "weather in {town}{please}.",
         "In {town} it is {degrees} degrees, {sky}.", "{town}: {sky}, {degrees} degrees."),
    tool("add", "Adds two numbers.", strings(a=INTEGER, b=INTEGER), lambda r: _two_numbers(r, "+", lambda a, b: a + b),
         "What is {a} + {b}? / What is {a} plus {b}? / Add {a} and {b}{please}. / How much is {a} and {b}?",
         "{a} + {b} = {result}.", "It is {result}."),
    tool("multiply", "Multiplies two numbers.", strings(a=INTEGER, b=INTEGER),
         lambda r: _two_numbers(r, "*", lambda a, b: a * b),
         "What is {a} times {b}? / Multiply {a} by {b}{please}. / How much is {a} * {b}?",
         "{a} * {b} = {result}.", "It is {result}."),
    tool("set_timer", "Starts a timer.", strings(minutes=INTEGER), _timer,
         "Set a timer for {minutes} minutes{please}. / Wake me in {minutes} minutes. / Start a timer of {minutes} minutes.",
         "The timer is set: {minutes} minutes.", "Done. I shall ring in {minutes} minutes."),
    tool("get_time", "The time in a city.", strings("city"), _time,
         "What time is it in {town}? / Tell me the time in {town}{please}. / How late is it in {town}?",
         "In {town} it is {time}.", "It is {time} in {town}."),
    tool("save_note", "Keeps a note.", strings("text"), _note,
         "Write down: {note}. / Make a note: {note}. / Remind me to {note}{please}. / Note this{please}: {note}.",
         "I have written it down: {note}.", "Noted: {note}."),
    tool("find_number", "The telephone number of a person.", strings("name"), _phone,
         "What is the number of {name}? / Find the telephone number of {name}{please}. / How can I call {name}?",
         "{name} has the number {number}.", "The number of {name} is {number}."),
    tool("next_train", "When the next train leaves.", strings("from", "to"), _train,
         "When is the next train from {a} to {b}? / I want to go from {a} to {b}. / Is there a train from {a} to {b}?",
         "The next train from {a} to {b} leaves at {time}.", "At {time}."),
    tool("bench", "Times a model with sol.", strings("model"), _bench,
         "How fast is {model}? / Time {model}{please}. / Measure the speed of {model}.",
         "{model} makes {speed} tokens a second.", "I measured {speed} tokens a second."),
]


def form(name, properties, make, *tell):
    return {"name": name, "schema": {"type": "object", "properties": properties, "required": list(properties),
                                     "additionalProperties": False}, "make": make, "tell": list(tell)}


STRING = {"type": "string"}
SCHEMAS = [
    form("person", {"name": STRING, "age": INTEGER, "city": STRING},
         lambda r: {"name": r.choice(FIRST), "age": r.randint(5, 99), "city": r.choice(TOWN)},
         "{name} is {age} years old and lives in {city}.", "In {city} lives {name}, who is {age}.",
         "My friend {name} from {city} is {age} years old."),
    form("order", {"item": STRING, "count": INTEGER},
         lambda r: {"item": r.choice(FOOD), "count": r.randint(1, 50)},
         "I want {count} {item}.", "Send me {count} {item}{please}.", "Please write down an order: {count} {item}."),
    form("meeting", {"with": STRING, "day": STRING, "hour": INTEGER},
         lambda r: {"with": r.choice(FIRST), "day": r.choice(DAY), "hour": r.randint(7, 20)},
         "I meet {with} on {day} at {hour}.", "On {day} at {hour} I see {with}.", "{with} comes on {day}, at {hour}."),
    form("thing", {"what": STRING, "colour": STRING},
         lambda r: {"what": r.choice(THING), "colour": r.choice(COLOUR)},
         "I see a {colour} {what}.", "There is a {what}, and it is {colour}.", "My {what} is {colour}."),
    form("animal", {"kind": STRING, "name": STRING, "legs": INTEGER},
         lambda r: {"kind": r.choice(ANIMAL), "name": r.choice(FIRST), "legs": r.choice([2, 3, 4])},
         "Our {kind} is called {name} and has {legs} legs.", "{name} is a {kind} with {legs} legs."),
    form("trip", {"from": STRING, "to": STRING, "day": STRING},
         lambda r: dict(zip(("from", "to"), r.sample(TOWN, 2)), day=r.choice(DAY)),
         "I go from {from} to {to} on {day}.", "On {day} I travel to {to}; I start in {from}."),
    form("result", {"model": STRING, "tokens_per_second": INTEGER},
         lambda r: {"model": r.choice(["builtin", "gpt-oss-20b", "gpt-oss-120b"]), "tokens_per_second": r.randint(5, 900)},
         "{model} made {tokens_per_second} tokens a second.", "I measured {tokens_per_second} tokens a second with {model}."),
]
