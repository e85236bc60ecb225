package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

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

// Without a server, the error says what to do.
func ExampleConnectError() {
	_, err := fleet.Dial(context.Background(), fleet.Options{Address: "127.0.0.1:1", Plain: true, Timeout: time.Second})
	var away *fleet.ConnectError
	if errors.As(err, &away) {
		fmt.Println(away.Address)
		fmt.Println(away.Hint)
	}
	// Output:
	// 127.0.0.1:1
	// start one with `gpumux dev`, or give its address or TEMPORAL_ADDRESS
}
