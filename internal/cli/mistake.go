package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpumux/gpumux/internal/text"
)

// flagMistake adds to a mistake in a flag what was likely meant.
func flagMistake(c *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := nearFlag(c.Flags(), unknown.GetSpecifiedName()); near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	name, value := invalid.GetFlag().Name, invalid.GetValue()
	long := len(value) > 200
	if long {
		value = text.Beginning([]byte(value))
	}
	switch {
	case invalid.GetFlag().Value.Type() == "duration":
		if _, bare := time.ParseDuration(value + "s"); bare == nil {
			return fmt.Errorf("--%s %s has no unit; write %ss", name, value, value)
		}
		return fmt.Errorf("--%s %q is no time; write 90s, 5m or 2h", name, value)
	case long:
		return fmt.Errorf("invalid argument %q for \"--%s\" flag: %s", value, name, strings.ReplaceAll(invalid.Unwrap().Error(), invalid.GetValue(), value))
	}
	return err
}

// nearFlag is the flag that cobra would suggest if it were a command, the nearest first,
// or nothing.
func nearFlag(flags *pflag.FlagSet, name string) string {
	near := &cobra.Command{}
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			near.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	for near.SuggestionsMinimumDistance = 1; near.SuggestionsMinimumDistance <= 2; near.SuggestionsMinimumDistance++ {
		if found := near.SuggestionsFor(name); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}
