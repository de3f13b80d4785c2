// Messages between the ranks of one machine, in memory that they share.
//
// Each rank has an inbox and a room in this memory. A sender copies a message into its own room, puts
// it on top of the receiver's inbox and continues. The receiver takes all messages from its inbox,
// keeps those that it does not expect yet, and marks each message that it has copied as read. So a
// message keeps its place until it is read, and a sender does not wait for its receiver.

#ifndef COLLECTIVES_NATIVE_MAIL_H_
#define COLLECTIVES_NATIVE_MAIL_H_

#include <fcntl.h>

#include <cstring>
#include <list>
#include <string>

#include "window.h"

namespace collectives {

// The inbox of a rank.
struct Inbox {
  alignas(kAlignment) std::atomic<uint64_t> last;  // offset of the latest message, 0 if there is none
  Word arrived;                                    // number of messages that have arrived
};

// The header of a message, before its bytes.
struct alignas(kAlignment) Letter {
  uint64_t before;  // offset of the message before it in the receiver's inbox
  int64_t source, tag, bytes;
  std::atomic<uint32_t> is_read;
};

class Mail {
 public:
  // After the inboxes, each rank has `room` bytes of a file, whose pages are not reserved yet. Writes
  // bypass the caches while they are slower than `bypass_below` bytes a second.
  Mail(char* base, int rank, int ranks, int64_t room, int file, double spin_seconds, double bypass_below)
      : base_(base), rank_(rank), first_(Start(ranks) + rank * room), room_(room), file_(file),
        spin_seconds_(spin_seconds), bypass_(bypass_below) {}

  static int64_t Start(int ranks) { return (ranks * sizeof(Inbox) + 4095) / 4096 * 4096; }

  // The bytes of a room that a message takes.
  static int64_t Taken(int64_t bytes) {
    int64_t size = 4096;
    while (size < bytes + static_cast<int64_t>(sizeof(Letter))) size *= 2;
    return size;
  }

  void Send(int target, int64_t tag, const char* from, int64_t bytes) {
    const int64_t offset = Reserve(Taken(bytes));
    Letter& letter = At(offset);
    letter.source = rank_, letter.tag = tag, letter.bytes = bytes;
    char* body = reinterpret_cast<char*>(&letter + 1);
    Copy(body, from, bytes, bypass_.Try(body, bytes));
    EndStream();
    Inbox& inbox = InboxOf(target);
    letter.before = inbox.last.load();
    while (!inbox.last.compare_exchange_weak(letter.before, offset)) {
    }
    inbox.arrived.value.fetch_add(1);
    if (inbox.arrived.sleepers.load() != 0) {
      syscall(SYS_futex, &inbox.arrived.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }

  // Waits for the first message of a rank with a tag that is not received yet.
  void Receive(int source, int64_t tag, char* to, int64_t bytes) {
    Inbox& inbox = InboxOf(rank_);
    for (;;) {
      const uint32_t seen = inbox.arrived.value.load();
      Open(inbox.last.exchange(0));
      for (auto offset = unread_.begin(); offset != unread_.end(); ++offset) {
        Letter& letter = At(*offset);
        if (letter.source != source || letter.tag != tag) continue;
        if (letter.bytes != bytes) {
          throw std::runtime_error("a message has as many bytes as its receiver expects. Got " +
                                   std::to_string(letter.bytes) + " for " + std::to_string(bytes) + ".");
        }
        std::memcpy(to, reinterpret_cast<char*>(&letter + 1), bytes);
        unread_.erase(offset);
        letter.is_read = 1;
        return;
      }
      Wait(inbox.arrived, seen + 1, spin_seconds_);
    }
  }

 private:
  struct Part {
    int64_t offset, size;
  };

  Letter& At(uint64_t offset) const { return *reinterpret_cast<Letter*>(base_ + offset); }
  Inbox& InboxOf(int rank) const { return reinterpret_cast<Inbox*>(base_)[rank]; }

  // Appends the messages up to `last` to the unread ones, the oldest first.
  void Open(uint64_t last) {
    for (auto end = unread_.end(); last != 0; last = At(last).before) {
      end = unread_.insert(end, last);
    }
  }

  // Returns the offset of a free part of this rank's room: a part whose message was read, or a new
  // part. If the room is full, it waits until a message is read.
  int64_t Reserve(int64_t size) {
    for (;;) {
      for (const Part& part : parts_) {
        uint32_t is_read = 1;
        if (part.size == size && At(part.offset).is_read.compare_exchange_strong(is_read, 0)) return part.offset;
      }
      if (used_ + size <= room_) break;
      bool is_empty = true;
      for (const Part& part : parts_) is_empty = is_empty && At(part.offset).is_read.load() == 1;
      if (is_empty) {
        parts_.clear();
        used_ = 0;
      } else {
        usleep(100);
      }
    }
    const int64_t offset = first_ + used_;
    // Without reserved pages, a write to full memory is a signal that ends the process.
    if (used_ + size > reserved_) {
      if (posix_fallocate(file_, offset, size) != 0) {
        throw std::runtime_error("messages of a step fit into /dev/shm. Got no more space there: "
                                 "make it larger, or set COLLECTIVES_NATIVE=0.");
      }
      reserved_ = used_ + size;
    }
    used_ += size;
    parts_.push_back({offset, size});
    At(offset).is_read = 0;
    return offset;
  }

  char* base_;
  int rank_;
  int64_t first_, room_;
  int file_;
  double spin_seconds_;
  Bypass bypass_;
  int64_t used_ = 0, reserved_ = 0;
  std::vector<Part> parts_;
  std::list<uint64_t> unread_;
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_MAIL_H_
