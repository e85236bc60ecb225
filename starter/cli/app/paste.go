package app

import (
	"os"
	"regexp"
	"slices"
	"strings"
)

// hinted is a command in a text, as all hints write them.
var hinted = regexp.MustCompile("`gpumux ([a-z]+)([^`\n]*)`")

// aboutServer are the commands that talk to a server; withStore are those of them that take --store.
var (
	aboutServer = []string{"map", "run", "ls", "show", "faults", "logs", "wait", "results", "pause", "resume", "cancel", "retry", "workers",
		"tasks", "doctor", "schedule", "prune"}
	withStore = []string{"map", "run", "faults", "logs", "results", "retry", "doctor", "prune"}
)

// pasted gives the commands in a text the flags that this command was given to find its server, so that they can be pasted.
func (a *App) pasted(text string) string {
	return hinted.ReplaceAllStringFunc(text, func(found string) string {
		parts := hinted.FindStringSubmatch(found)
		return "`" + a.Command(parts[1]+parts[2]) + "`"
	})
}

// Command is a command line of gpumux, for the server of this one.
func (a *App) Command(words string) string {
	name, _, _ := strings.Cut(words, " ")
	var flags []string
	add := func(flag, value string) {
		if value != "" && !strings.Contains(words, flag) {
			flags = append(flags, flag, value)
		}
	}
	if slices.Contains(aboutServer, name) {
		add("--address", a.Address)
		add("--namespace", a.Namespace)
	}
	if slices.Contains(withStore, name) && a.StoreURL != os.Getenv("GPUMUX_STORE") {
		add("--store", a.StoreURL)
	}
	if len(flags) == 0 {
		return "gpumux " + words
	}
	return "gpumux " + words + " " + ShellLine(flags)
}

// ShellLine is a command as a shell takes it.
func ShellLine(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}

// plain are the characters that no shell takes for anything else.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%"
