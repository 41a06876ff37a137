// A small map that forgets its least recently used entry. Used for compiled library primitives and packed weights; not
// thread-safe (each thread has its own).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace heddle::cpu {

// Key: plain data without padding, compared and hashed as bytes; its size is a multiple of 8.
template <class Key, class Value>
class LruCache {
  static_assert(std::has_unique_object_representations_v<Key> && sizeof(Key) % 8 == 0);

 public:
  explicit LruCache(std::size_t capacity) : capacity_(capacity) {}

  // The entry of key, or nullptr. Valid until it is forgotten. It becomes the most recently used.
  Value* find(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }
  // Adds the entry of a key that is not there yet.
  Value& insert(const Key& key, Value value) {
    if (entries_.size() >= capacity_) forget_oldest();
    entries_.emplace_front(key, std::move(value));
    index_.emplace(key, entries_.begin());
    return entries_.front().second;
  }
  // The least recently used entry. There must be one.
  Value& oldest() { return entries_.back().second; }
  void forget_oldest() {
    index_.erase(entries_.back().first);
    entries_.pop_back();
  }
  // Forgets all entries for which `unwanted` is true.
  template <class Predicate>
  void forget_if(const Predicate& unwanted) {
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      if (unwanted(entry->second)) {
        index_.erase(entry->first);
        entry = entries_.erase(entry);
      } else {
        ++entry;
      }
    }
  }
  std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept {
      std::uint64_t hash = 0xcbf29ce484222325u;
      const auto* const bytes = reinterpret_cast<const unsigned char*>(&key);
      for (std::size_t i = 0; i < sizeof(Key); i += 8) {
        std::uint64_t word;
        std::memcpy(&word, bytes + i, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
      }
      return hash;
    }
  };
  struct Equal {
    bool operator()(const Key& a, const Key& b) const noexcept { return std::memcmp(&a, &b, sizeof(Key)) == 0; }
  };
  using Entries = std::list<std::pair<Key, Value>>;

  std::size_t capacity_;
  Entries entries_;  // most recently used first
  std::unordered_map<Key, typename Entries::iterator, Hash, Equal> index_;
};

}  // namespace heddle::cpu
