package background_test

import (
	"testing"

	"github.com/recourse-dev/recourse/background"
)

func FuzzNotificationNumberOf(f *testing.F) {
	for _, s := range []string{"", ".", "x.3", "x.-1", "x.03", "x.3.4", "3", "x.99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if notificationNumber := background.NotificationNumberOf(id); notificationNumber < -1 {
			t.Errorf("%q has notification number %d", id, notificationNumber)
		}
	})
}

func TestNotificationNumberOfReadsWhatTaskIDWrites(t *testing.T) {
	t.Parallel()
	for _, notificationNumber := range []int{0, 1, 42, 1 << 40} {
		if got := background.NotificationNumberOf(background.TaskID(background.Run{NotificationNumber: notificationNumber})); got != notificationNumber {
			t.Errorf("notification number %d reads as %d", notificationNumber, got)
		}
	}
	for _, foreign := range []string{"", "x", "x.", "x.y", "x.-1"} {
		if got := background.NotificationNumberOf(foreign); got != -1 {
			t.Errorf("%q reads as notification number %d", foreign, got)
		}
	}
}
