// Messages between the ranks of one machine, in memory that they share.
//
// Each rank has an inbox there and a room, in which the messages lie that it has sent. Who sends
// copies a message into its own room, puts it on top of the receiver's inbox and goes on; the
// receiver takes all that has come, keeps what it does not look for yet, and says of each message
// that it has copied it. So a message has its place until it is read, and nobody waits for a reader.

#ifndef COLLECTIVES_NATIVE_MAIL_H_
#define COLLECTIVES_NATIVE_MAIL_H_

#include <fcntl.h>

#include <cstring>
#include <list>
#include <string>

#include "window.h"

namespace collectives {

// Of a rank. `last` is where the message begins that came last, 0 where none is.
struct Inbox {
  alignas(kAlignment) std::atomic<uint64_t> last;
  Word come;
};

// What is before a message's bytes.
struct alignas(kAlignment) Letter {
  uint64_t before;  // of the receiver's inbox
  int64_t source, tag, bytes;
  std::atomic<uint32_t> is_read;
};

class Mail {
 public:
  // `room` bytes for each rank lie after the inboxes, of a file that has no pages there yet. They are
  // written past the caches where less than `bypass_below` bytes a second can be written into them.
  Mail(char* base, int rank, int ranks, int64_t room, int file, double spin_seconds, double bypass_below)
      : base_(base), rank_(rank), first_(Start(ranks) + rank * room), room_(room), file_(file),
        spin_seconds_(spin_seconds), bypass_(bypass_below) {}

  static int64_t Start(int ranks) { return (ranks * sizeof(Inbox) + 4095) / 4096 * 4096; }

  // Of a room, what a message takes.
  static int64_t Taken(int64_t bytes) {
    int64_t size = 4096;
    while (size < bytes + static_cast<int64_t>(sizeof(Letter))) size *= 2;
    return size;
  }

  void Send(int target, int64_t tag, const char* from, int64_t bytes) {
    const int64_t place = Place(Taken(bytes));
    Letter& letter = At(place);
    letter.source = rank_, letter.tag = tag, letter.bytes = bytes;
    char* body = reinterpret_cast<char*>(&letter + 1);
    Copy(body, from, bytes, bypass_.Try(body, bytes));
    EndStream();
    Inbox& inbox = Of(target);
    letter.before = inbox.last.load();
    while (!inbox.last.compare_exchange_weak(letter.before, place)) {
    }
    inbox.come.value.fetch_add(1);
    if (inbox.come.sleepers.load() != 0) {
      syscall(SYS_futex, &inbox.come.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }

  // The first message of a rank with a tag that is not received yet.
  void Receive(int source, int64_t tag, char* to, int64_t bytes) {
    Inbox& inbox = Of(rank_);
    for (;;) {
      const uint32_t seen = inbox.come.value.load();
      Open(inbox.last.exchange(0));
      for (auto each = unread_.begin(); each != unread_.end(); ++each) {
        Letter& letter = At(*each);
        if (letter.source != source || letter.tag != tag) continue;
        if (letter.bytes != bytes) {
          throw std::runtime_error("a message has as many bytes as its receiver expects. Got " +
                                   std::to_string(letter.bytes) + " for " + std::to_string(bytes) + ".");
        }
        std::memcpy(to, reinterpret_cast<char*>(&letter + 1), bytes);
        unread_.erase(each);
        letter.is_read = 1;
        return;
      }
      Wait(inbox.come, seen + 1, spin_seconds_);
    }
  }

 private:
  struct Part {
    int64_t place, size;
  };

  Letter& At(uint64_t place) const { return *reinterpret_cast<Letter*>(base_ + place); }
  Inbox& Of(int rank) const { return reinterpret_cast<Inbox*>(base_)[rank]; }

  // What came, the oldest first.
  void Open(uint64_t last) {
    for (auto end = unread_.end(); last != 0; last = At(last).before) {
      end = unread_.insert(end, last);
    }
  }

  // A part of this rank's room: one whose message was read, a new one, or that which is read next.
  int64_t Place(int64_t size) {
    for (;;) {
      for (const Part& part : parts_) {
        uint32_t is_read = 1;
        if (part.size == size && At(part.place).is_read.compare_exchange_strong(is_read, 0)) return part.place;
      }
      if (used_ + size <= room_) break;
      bool is_empty = true;
      for (const Part& part : parts_) is_empty = is_empty && At(part.place).is_read.load() == 1;
      if (is_empty) {
        parts_.clear();
        used_ = 0;
      } else {
        usleep(100);
      }
    }
    const int64_t place = first_ + used_;
    // Without pages, the first write would be a signal that ends the process.
    if (used_ + size > reserved_) {
      if (posix_fallocate(file_, place, size) != 0) {
        throw std::runtime_error("messages of a step have room in /dev/shm. Got no more of it: give "
                                 "it more, or set COLLECTIVES_NATIVE=0.");
      }
      reserved_ = used_ + size;
    }
    used_ += size;
    parts_.push_back({place, size});
    At(place).is_read = 0;
    return place;
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
