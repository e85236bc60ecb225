// Command manual writes the manual pages and the shells' completions of gpumux into a
// folder, for `make dist`:
//
//	manual -version 1.2.3 -date 2026-01-31 FOLDER
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/gpumux/gpumux/internal/cli"
)

func main() {
	version := flag.String("version", "development", "the version that the pages name")
	date := flag.String("date", time.Now().Format(time.DateOnly), "the date that the pages bear")
	flag.Parse()
	if err := write(flag.Arg(0), *version, *date); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

// write writes man/*.1 and completions/.
func write(folder, version, date string) error {
	day, err := time.Parse(time.DateOnly, date)
	if err != nil || folder == "" {
		return errors.New("give -date YYYY-MM-DD and a folder")
	}
	man, completions := filepath.Join(folder, "man"), filepath.Join(folder, "completions")
	for _, dir := range []string{man, completions} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	root := cli.Tree()
	err = errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(completions, "gpumux.bash"), true),
		root.GenZshCompletionFile(filepath.Join(completions, "_gpumux")),
		root.GenFishCompletionFile(filepath.Join(completions, "gpumux.fish"), true))
	prepare(root)
	header := &doc.GenManHeader{Title: "GPUMUX", Section: "1", Source: "gpumux " + version, Manual: "gpumux", Date: &day}
	return errors.Join(err, doc.GenManTree(root, header, man))
}

// prepare makes the texts of a command and of those below it Markdown.
func prepare(c *cobra.Command) {
	c.DisableAutoGenTag = true
	c.Long = markdown(c.Long)
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { f.Usage = literally.Replace(f.Usage) })
	for _, child := range c.Commands() {
		prepare(child)
	}
}

// literally takes from characters what they mean in Markdown.
var literally = strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`)

// markdown leaves lines that were laid out by hand, and takes the meaning of characters.
func markdown(text string) string {
	var b strings.Builder
	byHand := false
	for line := range strings.Lines(text) {
		was := byHand
		byHand = strings.HasPrefix(line, "  ") || strings.Contains(strings.TrimSpace(line), "   ")
		if byHand != was {
			b.WriteByte('\n')
		}
		if byHand {
			b.WriteString("    " + line)
		} else {
			b.WriteString(literally.Replace(line))
		}
	}
	return b.String()
}
