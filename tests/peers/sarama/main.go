// Stories of sarama, a client in Go that shares no code with franz-go. Standard input is the configuration as JSON;
// the program prints "done" or fails with the error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 3
	count      = 300
	deadline   = 60 * time.Second
)

type configuration struct {
	Bootstrap, Topic, Group, Story string
}

var stories = map[string]func(context.Context, configuration) error{
	"admin":       administration,
	"codecs":      codecs,
	"rebalance":   rebalance,
	"transaction": transaction,
}

func main() {
	var c configuration
	err := json.NewDecoder(os.Stdin).Decode(&c)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		story, found := stories[c.Story]
		if !found {
			err = errors.New("unknown story " + c.Story)
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

func settings() *sarama.Config {
	s := sarama.NewConfig()
	s.Version = sarama.MaxVersion
	s.Producer.RequiredAcks = sarama.WaitForAll
	s.Producer.Idempotent = true
	s.Producer.Return.Successes = true
	s.Net.MaxOpenRequests = 1 // an idempotent producer of sarama needs it
	s.Consumer.IsolationLevel = sarama.ReadCommitted
	s.Consumer.Offsets.Initial = sarama.OffsetOldest
	s.Consumer.Group.Session.Timeout = 30 * time.Second // a member of a slow machine must not lose its partitions
	s.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	return s
}

// -- administration --------------------------------------------------------------------------------------------------

func withAdmin(c configuration, use func(sarama.Client, sarama.ClusterAdmin) error) error {
	client, err := sarama.NewClient([]string{c.Bootstrap}, settings())
	if err != nil {
		return err
	}
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return err
	}
	return use(client, admin)
}

func create(c configuration) error {
	return withAdmin(c, func(_ sarama.Client, admin sarama.ClusterAdmin) error {
		return admin.CreateTopic(c.Topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
	})
}

func administration(_ context.Context, c configuration) error {
	return withAdmin(c, func(client sarama.Client, admin sarama.ClusterAdmin) error {
		retention := "3600000"
		detail := &sarama.TopicDetail{
			NumPartitions: partitions, ReplicationFactor: 1,
			ConfigEntries: map[string]*string{"retention.ms": &retention},
		}
		if err := admin.CreateTopic(c.Topic, detail, false); err != nil {
			return err
		}
		if err := admin.CreateTopic(c.Topic, detail, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
			return fmt.Errorf("a second creation: %v", err)
		}
		entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: c.Topic})
		if err != nil {
			return err
		}
		found := map[string]string{}
		for _, entry := range entries {
			found[entry.Name] = fmt.Sprint(entry.Value, " ", entry.Source)
		}
		if found["retention.ms"] != "3600000 Topic" || found["cleanup.policy"] != "delete Default" {
			return fmt.Errorf("the configuration is %v", found)
		}
		described, err := admin.DescribeTopics([]string{c.Topic})
		if err != nil {
			return err
		}
		if len(described) != 1 || len(described[0].Partitions) != partitions {
			return fmt.Errorf("the topic is %v", described)
		}
		if err := produce(c, settings(), "v", count); err != nil {
			return err
		}
		newest, err := ends(client, c.Topic)
		if err != nil {
			return err
		}
		if newest != count {
			return fmt.Errorf("the ends of the partitions are %d in all", newest)
		}
		oldest, err := client.GetOffset(c.Topic, 0, sarama.OffsetOldest)
		if err != nil || oldest != 0 {
			return fmt.Errorf("the oldest offset is %d: %v", oldest, err)
		}
		later, err := client.GetOffset(c.Topic, 0, time.Now().Add(time.Hour).UnixMilli())
		if err != nil || later != -1 {
			return fmt.Errorf("the offset of a later time is %d: %v", later, err)
		}
		if err := admin.CreatePartitions(c.Topic, partitions+1, nil, false); err != nil {
			return err
		}
		return admin.DeleteTopic(c.Topic)
	})
}

// Returns the sum of the end offsets.
func ends(client sarama.Client, topic string) (int64, error) {
	var sum int64
	for partition := range int32(partitions) {
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		if err != nil {
			return 0, err
		}
		sum += end
	}
	return sum, nil
}

// -- records ---------------------------------------------------------------------------------------------------------

func messages(topic, word string, count int) []*sarama.ProducerMessage {
	made := make([]*sarama.ProducerMessage, count)
	for i := range made {
		made[i] = &sarama.ProducerMessage{
			Topic:   topic,
			Key:     sarama.StringEncoder(fmt.Sprintf("key-%d", i)),
			Value:   sarama.StringEncoder(fmt.Sprintf("%s-%d", word, i)),
			Headers: []sarama.RecordHeader{{Key: []byte("word"), Value: []byte(word)}},
		}
	}
	return made
}

func produce(c configuration, s *sarama.Config, word string, count int) error {
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, s)
	if err != nil {
		return err
	}
	defer producer.Close()
	return producer.SendMessages(messages(c.Topic, word, count))
}

func codecs(ctx context.Context, c configuration) error {
	if err := create(c); err != nil {
		return err
	}
	words := []string{}
	for codec := sarama.CompressionNone; codec <= sarama.CompressionZSTD; codec++ {
		s := settings()
		s.Producer.Compression = codec
		words = append(words, codec.String())
		if err := produce(c, s, codec.String(), count); err != nil {
			return fmt.Errorf("%s: %w", codec, err)
		}
	}
	reader := newMember()
	if err := reader.run(ctx, c, reader.has(words...)); err != nil {
		return err
	}
	return reader.committed(c)
}

// -- groups ----------------------------------------------------------------------------------------------------------

// A member of a group: its present claims, and the values that it has read.
type member struct {
	lock   sync.Mutex
	claims []int32
	values map[string]int
}

func newMember() *member {
	return &member{values: map[string]int{}}
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.claims = nil
	for _, claimed := range session.Claims() {
		m.claims = append(m.claims, claimed...)
	}
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.claims = nil
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		if len(message.Headers) != 1 || string(message.Headers[0].Key) != "word" {
			return fmt.Errorf("the headers are %v", message.Headers)
		}
		m.lock.Lock()
		m.values[string(message.Value)]++
		m.lock.Unlock()
		session.MarkMessage(message, "")
	}
	return nil
}

func (m *member) claimed() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.claims)
}

// Returns a condition: the member has read all messages with the words.
func (m *member) has(words ...string) func() bool {
	return func() bool {
		m.lock.Lock()
		defer m.lock.Unlock()
		for _, word := range words {
			for i := range count {
				if m.values[fmt.Sprintf("%s-%d", word, i)] == 0 {
					return false
				}
			}
		}
		return true
	}
}

// Starts the member; the function that it returns makes it leave, and returns its error.
func (m *member) start(ctx context.Context, c configuration) (func() error, error) {
	group, err := sarama.NewConsumerGroup([]string{c.Bootstrap}, c.Group, settings())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			err = group.Consume(ctx, []string{c.Topic}, m)
		}
		ended <- err
	}()
	return func() error {
		cancel()
		return errors.Join(<-ended, group.Close())
	}, nil
}

// Runs a member until a condition is true.
func (m *member) run(ctx context.Context, c configuration, condition func() bool) error {
	leave, err := m.start(ctx, c)
	if err != nil {
		return err
	}
	return errors.Join(wait(ctx, "the member has read everything", condition), leave())
}

// Returns an error unless the group has committed everything.
func (m *member) committed(c configuration) error {
	return withAdmin(c, func(client sarama.Client, admin sarama.ClusterAdmin) error {
		end, err := ends(client, c.Topic)
		if err != nil {
			return err
		}
		offsets, err := admin.ListConsumerGroupOffsets(c.Group, map[string][]int32{c.Topic: {0, 1, 2}})
		if err != nil {
			return err
		}
		var sum int64
		for partition := range int32(partitions) {
			sum += offsets.GetBlock(c.Topic, partition).Offset
		}
		if sum != end {
			return fmt.Errorf("the committed offsets are %d in all, not %d", sum, end)
		}
		return nil
	})
}

func wait(ctx context.Context, what string, condition func() bool) error {
	for !condition() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %s", deadline, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func rebalance(ctx context.Context, c configuration) error {
	if err := create(c); err != nil {
		return err
	}
	first, second := newMember(), newMember()
	hasAll := func() bool { return len(first.claimed()) == partitions }
	leaveFirst, err := first.start(ctx, c)
	if err != nil {
		return err
	}
	if err := wait(ctx, "the first member has all partitions", hasAll); err != nil {
		return err
	}
	if err := produce(c, settings(), "alone", count); err != nil {
		return err
	}
	leaveSecond, err := second.start(ctx, c)
	if err != nil {
		return err
	}
	shared := func() bool {
		one, two := first.claimed(), second.claimed()
		every := map[int32]bool{}
		for _, partition := range append(one, two...) {
			every[partition] = true
		}
		return len(one) > 0 && len(two) > 0 && len(one)+len(two) == partitions && len(every) == partitions
	}
	if err := wait(ctx, "the members share the partitions", shared); err != nil {
		return err
	}
	if err := produce(c, settings(), "shared", count); err != nil {
		return err
	}
	both := func() bool {
		all := newMember()
		for _, each := range []*member{first, second} {
			each.lock.Lock()
			maps.Copy(all.values, each.values)
			each.lock.Unlock()
		}
		return all.has("alone", "shared")()
	}
	if err := wait(ctx, "the members have read everything", both); err != nil {
		return err
	}
	if first.has("shared")() || second.has("shared")() {
		return errors.New("one member has read the partitions of the other")
	}
	if err := leaveSecond(); err != nil {
		return err
	}
	if err := wait(ctx, "the first member has all partitions again", hasAll); err != nil {
		return err
	}
	if err := produce(c, settings(), "again", count); err != nil {
		return err
	}
	if err := wait(ctx, "the first member has read the rest", first.has("again")); err != nil {
		return err
	}
	if err := leaveFirst(); err != nil {
		return err
	}
	return first.committed(c)
}

// -- transactions ----------------------------------------------------------------------------------------------------

func transaction(ctx context.Context, c configuration) error {
	if err := create(c); err != nil {
		return err
	}
	s := settings()
	s.Producer.Transaction.ID = c.Topic
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, s)
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := write(producer, c.Topic, "aborted", producer.AbortTxn); err != nil {
		return err
	}
	if err := write(producer, c.Topic, "kept", producer.CommitTxn); err != nil {
		return err
	}
	reader := newMember()
	if err := reader.run(ctx, c, reader.has("kept")); err != nil {
		return err
	}
	if len(reader.values) != count {
		return fmt.Errorf("%d different values were read", len(reader.values))
	}
	// Offsets in a transaction: the group continues there.
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	offsets := []*sarama.PartitionOffsetMetadata{{Partition: 0, Offset: 1, LeaderEpoch: -1}}
	if err := producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{c.Topic: offsets}, c.Group); err != nil {
		return err
	}
	if err := producer.CommitTxn(); err != nil {
		return err
	}
	return withAdmin(c, func(_ sarama.Client, admin sarama.ClusterAdmin) error {
		return wait(ctx, "the offset of the transaction is committed", func() bool {
			found, err := admin.ListConsumerGroupOffsets(c.Group, map[string][]int32{c.Topic: {0}})
			return err == nil && found.GetBlock(c.Topic, 0).Offset == 1
		})
	})
}

func write(producer sarama.SyncProducer, topic, word string, end func() error) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	if err := producer.SendMessages(messages(topic, word, count)); err != nil {
		return err
	}
	return end()
}
