"""Support tickets of six classes in varied wording, made up: `python -m tests.bench.tickets 430 train.csv`."""

import csv
import random
import sys

OPENINGS = (
    "Hi,", "Hello team,", "Good morning,", "Dear support,", "Hey there,", "", "", "To whom it may concern,",
    "Hi again,",
)  # fmt: skip
CLOSINGS = (
    "Thanks!", "Please help.", "Kind regards, {name}", "Can someone look into this?", "", "", "Waiting for your reply.",
    "This is rather urgent.", "Best, {name}", "Let me know what you need from me.",
)  # fmt: skip
ASIDES = (
    "I have been a customer since {year}.", "I am writing from my phone.", "My colleague {name} has seen it, too.", "",
    "", "", "I looked through the help pages first.", "It is the second time I ask.", "We are a team of {number}.",
)  # fmt: skip
SLOTS = {
    "name": ("Ada", "Grace", "Linus", "Noor", "Kwame", "Ines", "Tomasz", "Mei", "Lars", "Priya"),
    "year": ("2016", "2018", "2019", "2021", "2023", "2024"),
    "number": ("three", "8", "a dozen", "25", "40", "two hundred"),
    "money": ("12.99 euros", "49 dollars", "$120", "89 pounds", "the yearly fee", "240 euros"),
    "when": ("yesterday", "last Monday", "on the 3rd", "this morning", "two weeks ago", "in March"),
    "thing": ("headphones", "the blue jacket", "a desk lamp", "two books", "the coffee grinder", "my order"),
    "page": ("the dashboard", "the report page", "the search box", "the export dialog", "the calendar", "the editor"),
    "device": ("my iPad", "Windows 11", "an old Android phone", "Firefox", "Chrome on a Mac", "the desktop program"),
    "town": ("Lyon", "Leeds", "Porto", "Oslo", "Graz", "Denver", "Nairobi"),
}  # fmt: skip
BODIES = {
    "billing": (
        "I was charged {money} twice {when}.",
        "The invoice from {when} shows {money}, but I agreed to less.",
        "Why did you take {money} from my card {when}?",
        "My bank statement lists a payment of {money} that I do not recognise.",
        "We need a receipt with our VAT number for {money}.",
        "The discount was not applied and I paid {money} in full.",
        "Could you move us to paying by invoice instead of by credit card?",
    ),
    "login": (
        "I can't sign in since {when}; it says that my password is wrong.",
        "The code for two-factor authentication never reaches me.",
        "My account is locked after too many attempts {when}.",
        "The link to reset the password has expired before I could open it.",
        "Since {when} I am thrown out a minute after I log in on {device}.",
        "I changed my phone and have lost access to my authenticator.",
        "Please give {name} access to our account, the invitation does not arrive.",
    ),
    "delivery": (
        "{thing} should have arrived {when} and there is no sign of it.",
        "The tracking number has not moved since {when}; it is stuck in {town}.",
        "The courier left {thing} with a neighbour I do not know.",
        "Can you still change the address? I moved to {town}.",
        "The parcel came open and {thing} was missing from it.",
        "When will {thing} be shipped to {town}?",
        "It says delivered {when}, but nobody rang and nothing is here.",
    ),
    "refund": (
        "I sent {thing} back {when} and still have no money.",
        "{thing} does not fit, how do I return it?",
        "I would like my {money} back, the product is not what was described.",
        "Is it possible to exchange {thing} for a larger size?",
        "You confirmed my return {when}; when do I get reimbursed?",
        "I cancelled within fourteen days, so please repay {money}.",
        "The return label for {thing} can't be printed.",
    ),
    "bug": (
        "{page} crashes as soon as I open it on {device}.",
        "Since the update {when}, {page} shows an empty screen.",
        "When I press save in {page} nothing happens, the spinner turns for ever.",
        "I get error 500 whenever I upload a file on {device}.",
        "The numbers in {page} do not add up after {when}.",
        "On {device} the buttons of {page} overlap and can't be clicked.",
        "Sorting by date in {page} puts everything in the wrong order.",
    ),
    "feature": (
        "It would be great if {page} could be used offline.",
        "Do you plan a dark theme for {page}?",
        "Please add a way to share {page} with guests.",
        "We would love an integration with our calendar and chat.",
        "Could {page} get keyboard shortcuts, as other tools have?",
        "A suggestion: let us sort and filter {page} by several columns.",
        "Have you thought about a version for {device}?",
    ),
}


def tickets(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """(text, class), no two texts alike."""
    rng = random.Random(seed)
    made: dict[str, str] = {}
    while len(made) < count:
        label = rng.choice(list(BODIES))
        parts = [rng.choice(OPENINGS), rng.choice(BODIES[label]), rng.choice(ASIDES), rng.choice(CLOSINGS)]
        if rng.random() < 0.3:
            parts[1:3] = parts[2:0:-1]
        text = " ".join(part for part in parts if part)
        text = text.format(**{slot: rng.choice(values) for slot, values in SLOTS.items()})
        made[text.lower() if rng.random() < 0.2 else text] = label
    return list(made.items())


if __name__ == "__main__":
    with open(sys.argv[2], "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *tickets(int(sys.argv[1]), *map(int, sys.argv[3:]))])
