package launch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
)

const (
	placeholder = "{}"
	// longestWord is the most bytes that Linux takes in a word of a command, without NUL.
	longestWord = 128<<10 - 1
)

// CommandArgv are the command's words with the item in place of {}: text, or JSON.
func (t Task) CommandArgv(item json.RawMessage) ([]string, error) {
	command := t.Command
	if !slices.ContainsFunc(command[1:], func(word string) bool { return strings.Contains(word, placeholder) }) {
		return command, nil
	}
	text := string(item)
	if text != "" && text[0] == '"' {
		if err := json.Unmarshal(item, &text); err != nil {
			return nil, fmt.Errorf("the item is no text for {}: %w", err)
		}
	}
	if strings.ContainsRune(text, 0) {
		return nil, fmt.Errorf("the item holds a NUL character, which no word of a command can")
	}
	all := slices.Clone(command)
	for i, word := range all[1:] {
		all[i+1] = strings.ReplaceAll(word, placeholder, text)
		if len(all[i+1]) > longestWord {
			return nil, fmt.Errorf("a word of the command would have %s with the item in it, more than the %s that the system takes; "+
				"read the item from standard input instead", gpumux.Size(len(all[i+1])), gpumux.Size(longestWord))
		}
	}
	return all, nil
}
