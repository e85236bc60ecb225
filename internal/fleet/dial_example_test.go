package fleet_test

import (
	"context"
	"log"

	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/starter"
)

// With encrypted payloads and objects, a client needs the workers' keys.
func ExampleDial() {
	keys, err := codec.Load("/etc/gpumux/keys")
	if err != nil {
		log.Fatal(err)
	}
	c, err := fleet.Dial(context.Background(), fleet.Options{Address: "temporal:7233", Codec: keys})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s := &starter.Starter{Client: c, Sealed: true, Keys: keys}
	defer s.Close()
}
