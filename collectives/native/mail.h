// Messages between the ranks of one machine, in memory that they share.
//
// Each rank has an inbox and a room in this memory. A sender copies a message into its own room, puts
// it on top of the receiver's inbox and continues. The receiver takes all messages from its inbox,
// keeps those that it does not expect yet, and marks each message that it has copied as read. So a
// message keeps its place until it is read.
//
// A room consists of parts of a few sizes. A sender may make at least as many parts of a size as it
// sends messages of that size in one run of a program. If all of them are taken, it waits until one is
// read. That message belongs to an earlier run, so its receiver waits for nothing that this sender
// does in this run or later. Waits therefore lead to earlier runs, and never in a circle.

#ifndef COLLECTIVES_NATIVE_MAIL_H_
#define COLLECTIVES_NATIVE_MAIL_H_

#include <fcntl.h>

#include <cerrno>
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

  // Lets this rank make at least this number of parts of a size, which `Taken` has returned.
  void Allow(int64_t size, int64_t parts) {
    int64_t& allowed = rooms_[size].allowed;
    allowed = std::max(allowed, parts);
  }

  void Send(int target, int64_t tag, const char* from, int64_t bytes) {
    const uint64_t offset = Reserve(Taken(bytes));
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
  // The parts of one size.
  struct Parts {
    int64_t allowed = 0;
    std::vector<uint64_t> offsets;
  };

  Letter& At(uint64_t offset) const { return *reinterpret_cast<Letter*>(base_ + offset); }
  Inbox& InboxOf(int rank) const { return reinterpret_cast<Inbox*>(base_)[rank]; }

  // Appends the messages up to `last` to the unread ones, the oldest first.
  void Open(uint64_t last) {
    for (auto end = unread_.end(); last != 0; last = At(last).before) {
      end = unread_.insert(end, last);
    }
  }

  // Returns the offset of a part whose message was read, or of a new part. If there is none, it waits
  // until a message of this size is read.
  uint64_t Reserve(int64_t size) {
    Parts& parts = rooms_[size];
    for (;;) {
      for (uint64_t offset : parts.offsets) {
        uint32_t is_read = 1;
        if (At(offset).is_read.compare_exchange_strong(is_read, 0)) return offset;
      }
      if (static_cast<int64_t>(parts.offsets.size()) < parts.allowed) break;
      if (parts.allowed == 0) {
        throw std::runtime_error("a program's messages are counted before one is sent. Got one of " +
                                 std::to_string(size) + " bytes that was not.");
      }
      usleep(100);
    }
    parts.offsets.push_back(New(size));
    return parts.offsets.back();
  }

  // Returns the offset of a new part.
  uint64_t New(int64_t size) {
    if (used_ + size > room_) {
      throw std::runtime_error("all parts of a room fit into it. Got " + std::to_string(used_) +
                               " bytes and " + std::to_string(size) + " more for " +
                               std::to_string(room_) + ".");
    }
    const int64_t offset = first_ + used_;
    // Without reserved pages, a write beyond the memory limit is a signal that ends the process.
    int error;
    do {
      error = posix_fallocate(file_, offset, size);
    } while (error == EINTR);
    if (error != 0) {
      throw std::runtime_error("messages of a step fit into memory. Got " +
                               std::string(std::strerror(error)) + " for " + std::to_string(size) +
                               " bytes: raise the memory limit, or set COLLECTIVES_NATIVE=0.");
    }
    used_ += size;
    At(offset).is_read = 0;
    return offset;
  }

  char* base_;
  int rank_;
  int64_t first_, room_;
  int file_;
  double spin_seconds_;
  Bypass bypass_;
  int64_t used_ = 0;
  std::map<int64_t, Parts> rooms_;  // by their size
  std::list<uint64_t> unread_;
};

}  // namespace collectives

#endif  // COLLECTIVES_NATIVE_MAIL_H_
