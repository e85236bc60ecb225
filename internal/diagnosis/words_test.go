package diagnosis

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/wire"
)

// What a failed item says must not cost more than running it: of endless messages and
// chains only so much is read, and their ends tell as much as before.
func TestDiagnose_LongMessages(t *testing.T) {
	filler, oom := strings.Repeat("error 17 in the driver: ", 1<<16), "CUDA out of memory. Tried to allocate 2.00 GiB."
	endless := Evidence{Class: strings.Repeat("x", 1<<20), Message: filler, Chain: slices.Repeat([]wire.Cause{{Class: "RuntimeError", Message: filler}}, 1000)}
	read := 0
	for _, s := range endless.exceptions() {
		read += len(s.class) + len(s.text)
	}
	require.LessOrEqual(t, read, readAll+(1+readChain)*(readClass+1))
	require.Equal(t, gpumux.FaultTaskError, Diagnose(endless).Fault.Kind)

	for name, message := range map[string]string{"at the beginning": oom + filler, "at the end": filler + "\n" + oom} {
		for links := range 16 {
			e := Evidence{Class: "RuntimeError", Message: filler, Chain: make([]wire.Cause, links)}
			if links == 0 {
				e.Message = message
			} else {
				e.Chain[links-1].Message = message
			}
			f := Diagnose(e).Fault
			require.Equal(t, gpumux.FaultDeviceOOM, f.Kind, "%s of link %d", name, links)
			require.EqualValues(t, 2<<30, f.Requested)
			require.True(t, strings.HasPrefix(f.Message, oom), f.Message)
		}
	}
	require.True(t, utf8.ValidString(ends(strings.Repeat("ü", 4000), 4001)))
}

// A text that a rule matches has one of the words that are looked for first, in whatever
// letters.
func TestDiagnose_WordsLeaveNothingOut(t *testing.T) {
	var texts []string
	for _, c := range diagnosisCases(t) {
		texts = append(texts, c.Message, c.Tail, strings.ToUpper(c.Message), strings.ToLower(c.Tail))
		for _, cause := range c.Chain {
			texts = append(texts, cause.Message)
		}
	}
	for i := range rules {
		r := &rules[i]
		if r.text == nil {
			continue
		}
		require.NotEmpty(t, r.text().words, "rule %d of %s has to match every text in full: %v", i, r.stack, r.text())
		require.GreaterOrEqual(t, shortest(r.text().words), 3, "%s: %q", r.stack, r.text().words)
		for _, text := range texts {
			require.False(t, r.text().MatchString(text) && !r.text().mayMatch(strings.ToLower(text)), "%q lacks all of %q", text, r.text().words)
		}
	}
}
