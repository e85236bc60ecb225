"""Embeds some texts on this machine: python example.py"""

import gpumux


def embed(text: str) -> list[float]:
    """Stands for a model: how often each letter comes."""
    return [text.lower().count(letter) / len(text) for letter in "etaoin"]


def main() -> None:
    texts = [f"text number {n}" for n in range(1000)]
    for result in gpumux.map(embed, texts):
        if result.fault:
            print(result.index, result.fault)
        elif result.index % 250 == 0:
            print(result.index, result.value)

    with gpumux.Executor() as executor:
        print(executor.submit(embed, "one more").result())


if __name__ == "__main__":
    main()
