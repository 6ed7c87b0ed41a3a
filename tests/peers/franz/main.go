// One story of franz-go, a client in Go that shares no code with the others: produce, consume in a group, commit, and
// read a transaction; or, with a registry, registry.go. Standard input is the configuration as JSON; the program prints "done" or fails with the error.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type configuration struct {
	Bootstrap, Topic, Group   string
	Ca, Certificate, Key      string
	Mechanism, User, Password string
	Token                     string
	Transactional             bool
	Registry, Schema, From    string
}

func main() {
	var c configuration
	err := json.NewDecoder(os.Stdin).Decode(&c)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		if c.Registry != "" {
			err = registryStory(ctx, c)
		} else {
			err = story(ctx, c)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func options(c configuration) ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap), kgo.AllowAutoTopicCreation(), kgo.RetryTimeout(20 * time.Second),
		kgo.RequestRetries(5),
	}
	if c.Ca != "" {
		pem, err := os.ReadFile(c.Ca)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("no certificates in " + c.Ca)
		}
		config := &tls.Config{RootCAs: pool}
		if c.Certificate != "" {
			pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{pair}
		}
		opts = append(opts, kgo.DialTLSConfig(config))
	}
	var mechanism sasl.Mechanism
	switch c.Mechanism {
	case "":
		return opts, nil
	case "PLAIN":
		mechanism = plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: c.Token}.AsMechanism()
	default:
		return nil, errors.New("unknown mechanism " + c.Mechanism)
	}
	return append(opts, kgo.SASL(mechanism)), nil
}

func story(ctx context.Context, c configuration) error {
	opts, err := options(c)
	if err != nil {
		return err
	}
	if c.Transactional {
		opts = append(opts, kgo.TransactionalID(c.Topic))
	}
	producer, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer producer.Close()
	// Producing repeats a failed log-in until the deadline; this fails at once.
	if err := producer.Ping(ctx); err != nil {
		return err
	}
	const count = 500
	if c.Transactional {
		if err := write(ctx, producer, c.Topic, "aborted", 50, kgo.TryAbort); err != nil {
			return err
		}
		err = write(ctx, producer, c.Topic, "kept", count, kgo.TryCommit)
	} else {
		err = produce(ctx, producer, c.Topic, "kept", count)
	}
	if err != nil {
		return err
	}
	opts, err = options(c)
	if err != nil {
		return err
	}
	consumer, err := kgo.NewClient(append(opts,
		kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())...)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for got := 0; got < count; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			if want := fmt.Sprintf("kept-%d", got); string(record.Value) != want {
				return fmt.Errorf("record %d is %q, not %q", got, record.Value, want)
			}
			got++
		}
	}
	return consumer.CommitUncommittedOffsets(ctx)
}

func produce(ctx context.Context, client *kgo.Client, topic, word string, count int) error {
	records := make([]*kgo.Record, count)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte(fmt.Sprintf("%s-%d", word, i))}
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func write(
	ctx context.Context, client *kgo.Client, topic, word string, count int, end kgo.TransactionEndTry,
) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := produce(ctx, client, topic, word, count); err != nil {
		return err
	}
	return client.EndTransaction(ctx, end)
}
