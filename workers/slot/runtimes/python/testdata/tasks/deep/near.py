WORD = "near"
