// A test with Ottla in a container, by the module for Kafka of testcontainers: only the name of the image differs.
//
// Needs a container runtime, the image (docs/containers.md), and:
//
//	go get github.com/testcontainers/testcontainers-go/modules/kafka github.com/twmb/franz-go/pkg/kgo
package orders

import (
	"context"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestOrderIsReadBack(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	container, err := kafka.Run(ctx, "ottla:latest")
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	brokers, err := container.Brokers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	record := &kgo.Record{Topic: "orders", Value: []byte("one coffee")}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	fetches := client.PollFetches(ctx)
	if got := string(fetches.Records()[0].Value); got != "one coffee" {
		t.Fatalf("read %q", got)
	}
}
