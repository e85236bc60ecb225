package contract_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// Any client can send an input with a mistake in each of its entries.
func TestValidate_ManyMistakesAreToldInPart(t *testing.T) {
	err := contract.PartInput{Parts: "m.parts", Results: make([]gpumux.Result, 100_000)}.Validate()
	var wrong *gpumux.InputError
	require.ErrorAs(t, err, &wrong)
	require.Len(t, wrong.Problems, 21)
	require.Equal(t, "has more mistakes than these", wrong.Problems[20].Message)
	require.Less(t, cap(wrong.Problems), 100, "none of the others is kept")
	require.True(t, strings.HasPrefix(err.Error(), "invalid input of WritePart: results[0]: has neither a value nor a fault"))
}
