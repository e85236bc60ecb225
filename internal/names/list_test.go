package names_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/names"
)

func TestList_ThereAndBack(t *testing.T) {
	for list, want := range map[string][]string{
		"id,text":               {"id", "text"},
		`"price, EUR",id`:       {"price, EUR", "id"},
		`id,"a ""b"", c",""`:    {"id", `a "b", c`, ""},
		`"say ""hi"""`:          {`say "hi"`},
		"a=b,-x, y ,[z],\"\n\"": {"a=b", "-x", " y ", "[z]", "\n"},
		`""`:                    {""},
		`","`:                   {","},
		`""""`:                  {`"`},
		"a\nb":                  nil,
		`say "hi"`:              nil,
		``:                      nil,
		`"a`:                    nil,
		`"a"b`:                  nil,
	} {
		got, err := names.ParseList(list)
		require.Equal(t, want, got, list)
		require.Equal(t, want == nil, err != nil, list)
		if want != nil {
			require.Equal(t, list, names.List(got, ","))
		}
	}
}
