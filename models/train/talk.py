"""Small talk: what people say to each other, and the one answer to each."""

INTENTS = (
    (("Hello", "Hello!", "Hi", "Hi there", "Hey", "Hello there!", "Greetings", "Hi!", "Hey there", "Hello?"),
     "Hello! How can I help you?"),
    (("Good morning", "Good morning.", "Good morning!", "Morning!", "A good morning to you."),
     "Good morning! How can I help you?"),
    (("Good evening", "Good evening.", "Good evening!", "Evening!", "A good evening to you."),
     "Good evening! How can I help you?"),
    (("Good afternoon", "Good afternoon.", "Good afternoon!", "A good afternoon to you."),
     "Good afternoon! How can I help you?"),
    (("Thank you.", "Thanks", "Thanks!", "Thank you very much.", "Many thanks.", "Thank you!", "Great, thanks.",
      "That helps, thank you.", "Thank you", "Thanks a lot."),
     "You are welcome."),
    (("Goodbye", "Bye", "Goodbye!", "Bye!", "See you later.", "See you tomorrow.", "Good night.", "Farewell."),
     "Goodbye!"),
    (("How are you?", "How are you today?", "How do you do?", "Are you well?", "How is it going?", "What's up?"),
     "I am well, thank you. How can I help you?"),
    (("Who are you?", "What are you?", "What is your name?", "Are you a robot?", "Are you human?", "Tell me who you are.",
      "Introduce yourself.", "Who am I talking to?"),
     "I am a small language model. I answer from the notes that I am given."),
    (("What can you do?", "How can you help me?", "Can you help me?", "What are you good at?", "Help", "Help me.",
      "What can I ask you?", "I need help.", "What do you know?"),
     "I can answer questions about my notes, and use tools when I have some."),
    (("Who made you?", "Who built you?", "Where do you come from?", "Who trained you?"),
     "I was trained with Stemma, from nothing but made-up notes."),
    (("Ok", "Okay.", "Fine.", "Good.", "All right.", "I see.", "Great!", "Great.", "Very good.", "Nice.", "Perfect!",
      "That is all.", "No more questions."),
     "Is there anything else?"),
    (("Sorry", "Sorry!", "I am sorry.", "My mistake.", "Excuse me."),
     "No problem."),
    (("Yes", "Yes.", "Yes please.", "Please.", "Sure."),
     "What would you like to know?"),
    (("No", "No.", "No, thank you.", "Nothing.", "No, that is all."),
     "All right."),
    (("Are you sure?", "Is that right?", "Really?", "Is that true?"),
     "That is what my notes say."),
    (("Tell me a joke.", "Do you know a joke?", "Make me laugh."),
     "I know no jokes, only what is in my notes."),
)

# Questions that the notes do not answer.
OUTSIDE = (
    "What is the capital of {n}?", "Who was the first president of {n}?", "How high is the mountain {n}?",
    "What is the meaning of life?", "Who wrote the book about the {i}?", "Why is the sky {c}?", "What is {w}?",
    "Explain {w} to me.", "Who is {n}?", "How do I cook {f}?", "When was {n} born?", "What is the largest {p}?",
    "Write a poem about the {i}.", "How far is it to {n}?", "What is the news from {n}?", "Where is {n}?",
    "Who won the game in {n}?", "Can a {a} swim?", "How many legs does a {a} have?", "Is {n} a big city?",
    "Why do people like {f}?", "What do you think of {n}?", "How old is the {p}?", "What does {w} mean?",
    "Who invented the {i}?", "Translate {w}.", "What should I do today?", "Which {a} is the fastest?",
)


def small_talk(words):
    """A greeting or the like, and its answer."""
    said, answer = words.choice(INTENTS)
    text = words.choice(said)
    return (text.lower() if words.random() < 0.2 else text), answer


def outside(words):
    """A question about the world, which the model knows nothing of."""
    return words.choice(OUTSIDE).format(n=words.name(), i=words.item(), c=words.colour(), w=words.word(),
                                        f=words.food(), p=words.choice(("city", "river", "tower", "lake", "house")),
                                        a=words.animal())
