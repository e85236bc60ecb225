package gputest_test

import (
	"testing"

	"github.com/gpumux/gpumux/gpu/gputest"
)

func TestStandIns_AnswerAsIsWrittenDown(t *testing.T) {
	m := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{}}})
	gputest.CheckAnswers(t, "python3", m.Env())
}
