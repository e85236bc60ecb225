package names_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/names"
)

func TestList_ThereAndBack(t *testing.T) {
	for list, want := range map[string][]string{
		"id,text":                {"id", "text"},
		`"price, EUR",id`:        {"price, EUR", "id"},
		`id,"a ""b"", c",""`:     {"id", `a "b", c`, ""},
		`"say ""hi"""`:           {`say "hi"`},
		"a=b,-x, y ,[z],\n,\r\n": {"a=b", "-x", " y ", "[z]", "\n", "\r\n"},
		`""`:                     {""},
		`","`:                    {","},
		`""""`:                   {`"`},
		`,`:                      nil,
		``:                       nil,
		`a,`:                     nil,
		`"a",`:                   nil,
		`"a`:                     nil,
		`"a"b`:                   nil,
	} {
		got, err := names.ParseList(list)
		require.Equal(t, want, got, list)
		require.Equal(t, want == nil, err != nil, list)
		if want != nil {
			require.Equal(t, list, names.List(got, ","))
		}
	}
	got, err := names.ParseList(`say "hi",b`)
	require.NoError(t, err)
	require.Equal(t, []string{`say "hi"`, "b"}, got)
}
