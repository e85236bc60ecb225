"""Tasks on text, one of each kind: plain, batch, resident and async. Standard library only."""

import asyncio
import collections
import hashlib
import math

import gpumux

UNSEEN = 0.1  # how often a trigram that no sample has counts as seen


def count(text):
    """A plain function: one item in, one value out."""
    words = text.lower().split()
    return {"words": len(words), "distinct": len(set(words)), "characters": len(text)}


@gpumux.batch(max=32)
def embed(texts):
    """A batch function: a list of items in, as many values out. Real models are fast only like this.

    Each word adds or subtracts 1 in one of eight places that its hash says, which makes texts with the same words alike.
    """
    return [_vector(text) for text in texts]


def language(text):
    """A task with a resident: the profiles are made once per process, as a model would be loaded."""
    profiles = gpumux.resident("profiles", lambda: {name: _trigrams(sample) for name, sample in SAMPLES.items()})
    return max(profiles, key=lambda name: _likelihood(_trigrams(text), profiles[name]))


async def reach(addresses):
    """An async function: the addresses ("host:port") of one item are tried at the same time."""
    answers = await asyncio.gather(*(_connects(address) for address in addresses))
    return dict(zip(addresses, answers))


async def _connects(address):
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), timeout=5)
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    await writer.wait_closed()
    return True


def _vector(text, size=8):
    places = [0.0] * size
    for word in text.lower().split():
        digest = hashlib.blake2b(word.encode(), digest_size=2).digest()
        places[digest[0] % size] += 1 if digest[1] & 1 else -1
    length = math.sqrt(sum(value * value for value in places)) or 1
    return [round(value / length, 4) for value in places]


def _likelihood(seen, profile):
    """The logarithm of how likely these trigrams are in text of the profile's language."""
    total = sum(profile.values()) + UNSEEN * 1000
    return sum(number * math.log((profile[trigram] + UNSEEN) / total) for trigram, number in seen.items())


def _trigrams(text):
    text = f" {' '.join(text.lower().split())} "
    return collections.Counter(text[i : i + 3] for i in range(len(text) - 2))


# The Universal Declaration of Human Rights, from articles 1 and 2.
SAMPLES = {
    "English": "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience "
    "and should act towards one another in a spirit of brotherhood. Everyone is entitled to all the rights and freedoms set "
    "forth in this Declaration, without distinction of any kind, such as race, colour, sex, language, religion, political or "
    "other opinion, national or social origin, property, birth or other status.",
    "French": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de "
    "conscience et doivent agir les uns envers les autres dans un esprit de fraternité. Chacun peut se prévaloir de tous les "
    "droits et de toutes les libertés proclamés dans la présente Déclaration, sans distinction aucune, notamment de race, de "
    "couleur, de sexe, de langue, de religion, d'opinion politique ou de toute autre opinion, d'origine nationale ou sociale, "
    "de fortune, de naissance ou de toute autre situation.",
    "German": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt "
    "und sollen einander im Geiste der Brüderlichkeit begegnen. Jeder hat Anspruch auf alle in dieser Erklärung verkündeten "
    "Rechte und Freiheiten, ohne irgendeinen Unterschied, etwa nach Rasse, Hautfarbe, Geschlecht, Sprache, Religion, "
    "politischer oder sonstiger Anschauung, nationaler oder sozialer Herkunft, Vermögen, Geburt oder sonstigem Stand.",
    "Spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y "
    "conciencia, deben comportarse fraternalmente los unos con los otros. Toda persona tiene todos los derechos y libertades "
    "proclamados en esta Declaración, sin distinción alguna de raza, color, sexo, idioma, religión, opinión política o de "
    "cualquier otra índole, origen nacional o social, posición económica, nacimiento o cualquier otra condición.",
}
