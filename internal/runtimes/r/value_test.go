package r_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/wiretest"
	"github.com/gpumux/gpumux/internal/text"
)

func TestValue_IsJSON(t *testing.T) {
	p := start(t, "value")
	for name, want := range map[string]string{
		"scalar": `7`, "text": `"a \"b\" \\ \u000a é"`, "none": `null`, "missing": `[1,null,3]`, "flags": `[true,null]`,
		"numbers": `[0.1,0.33333333333333331,1e+300,4.94065645841247e-324,-0]`, "odd": "[" + text.NaN + "," + text.Infinity + "," + text.MinusInfinity + "]",
		"names": `{"a":1,"b":2}`, "one": `[1]`, "empty": `[]`, "object": `{}`, "nested": `{"a":[1,"x"],"b":[]}`,
		"matrix": `[[1,3,5],[2,4,6]]`, "cube": `[[[1,5],[3,7]],[[2,6],[4,8]]]`, "many": `"` + strings.Repeat("AAAA", 100) + `"`, "bytes": `"AP8="`, "factor": `["u","v"]`,
		"date": `"2026-02-01"`, "time": `"1970-01-01T00:00:00.5Z"`, "took": `120`, "frame": `[{"a":1,"b":"x"},{"a":2,"b":null}]`,
		"big": `9007199254740992`,
	} {
		got := p.Do(1, fmt.Sprintf("%q", name))[0]
		require.Nil(t, got.Fault, name)
		require.Equal(t, want, got.Value, name)
	}
}

func TestValue_ItemsComeBackAsTheyWent(t *testing.T) {
	items := []string{`null`, `true`, `7`, `-0.5`, `"é \" \\"`, `[]`, `[1,2,3]`, `["a",null]`, `{"a":1,"b":{"c":[true,false]}}`,
		`[[1,2],[3,4]]`, `[{"a":1},{"a":2}]`, `1e300`,
		text.NaN, `[0.12345678901234566,` + text.Infinity + `,null]`, `{"a":` + text.MinusInfinity + `,"b":{},"c":"NaN"}`,
		`[{"a":1},{"a":` + text.NaN + `}]`, `{"a":["\u0007","x"],"b":` + text.NaN + `}`}
	p := start(t, "echo")
	for i, got := range p.Do(1, items...) {
		require.Nil(t, got.Fault, items[i])
		require.Equal(t, strings.ReplaceAll(items[i], "1e300", "1e+300"), got.Value)
	}
	require.Contains(t, p.Do(1, "{not")[0].Fault.Message, "the item is not JSON that R reads: lexical error")
	require.Equal(t, "9", start(t, "square").Do(1, "3")[0].Value)
}

func TestFault_TheProcessLivesOn(t *testing.T) {
	p := start(t, "fails")
	for _, c := range []struct{ kind, class, message string }{
		{"stop", "simpleError", "no good"},
		{"class", "odd_error", "odd"},
		{"quit", "QuitError", "the task called quit()"},
		{"deep", "", "(infinite recursion|stack)"},
		{"memory", "simpleError", "cannot allocate vector of size"},
		{"unsaid", "simpleError", `result\$a\[\[2\]\] is a function, which JSON cannot hold`},
		{"twice", "simpleError", "the name a is there twice"},
	} {
		got := p.Do(1, fmt.Sprintf("%q", c.kind))[0]
		require.NotNil(t, got.Fault, c.kind)
		require.Contains(t, got.Fault.Class, c.class)
		require.Regexp(t, c.message, got.Fault.Message)
		require.NotContains(t, got.Fault.Traceback, "withCallingHandlers", "no call of the runtime")
		require.Less(t, len(got.Fault.Traceback), 10000)
	}
	got := p.Do(1, `"stop"`)[0].Fault
	require.Regexp(t, `^  task\(item\)\n  inner\("no good"\) at tasks.R#\d+\n  stop\(text\) at tasks.R#\d+\nError: no good$`, got.Traceback)
	require.Equal(t, "before", p.Do(1, `"class"`)[0].Fault.Chain[0].Message)
}

func TestFault_AttemptsAndOutput(t *testing.T) {
	p := start(t, "flaky")
	require.Equal(t, wiretest.Answer{Value: "3", Attempts: 3}, p.Do(3, "3")[0])
	require.Equal(t, "try 5", p.Do(2, "7")[0].Fault.Message)
	p.RetryOn = []string{"http_429"}
	got := p.Do(3, "4", "9")
	require.Equal(t, "try 6", got[0].Fault.Message)
	require.True(t, got[0].Final && got[0].Attempts == 1)
	p.RetryOn = []string{"http_429", "simpleError"}
	require.Equal(t, wiretest.Answer{Value: "8", Attempts: 1}, p.Do(2, "8")[0])
	require.Equal(t, wiretest.Answer{Value: "10", Attempts: 2}, p.Do(3, "10")[0])

	p = start(t, "fails")
	quiet := p.Do(1, `"twice"`)[0]
	require.Zero(t, quiet.Out)
	printing := p.Do(1, `"says"`)[0]
	require.EqualValues(t, len("said\nnoted\n"), printing.Out)
	p.Do(1, `"warns"`)
	require.Contains(t, p.Printed(), "careful", "a warning belongs to its item")
}
