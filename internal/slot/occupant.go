package slot

import (
	"fmt"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/session"
)

type occupant struct {
	session *session.Session
	account *account
	edition string
	// kinds: it takes items with arrays as bytes.
	kinds bool
	// folder is where its items may leave files. unplaced: it could not be made.
	folder   string
	unplaced bool
}

func newOccupant(p *session.Session, limit int) *occupant {
	return &occupant{session: p, account: newAccount(p, limit)}
}

func (p *occupant) exited() bool {
	select {
	case <-p.session.Process.Exited:
		return true
	default:
		return false
	}
}

func (p *occupant) ending() string {
	switch over := p.session.Memory.Over(); {
	case over.Foreign != "":
		return fmt.Sprintf("it held %s on %s, which is not its slot's device", gpumux.Size(over.Held), over.Foreign)
	case over.Left > 0:
		return fmt.Sprintf("the host had %s left, and it held %s, the most of all", gpumux.Size(over.Left), gpumux.Size(over.Held))
	case over.Held > 0:
		return fmt.Sprintf("it held %s, over the budget of %s", gpumux.Size(over.Held), p.session.Memory.Budget)
	}
	return p.session.Process.Status.String()
}
