//! Which sessions of the log are looked for, and the question that asks for them.

use super::text::address_part;

/// Empty fields filter nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    pub caller: String,
    /// Words of the agent.
    pub words: String,
    pub persona_id: String,
    pub voice: String,
    /// A name of an end reason, or `running`.
    pub ended: String,
    /// Unix milliseconds.
    pub from_ms: Option<i64>,
    pub to_ms: Option<i64>,
}

impl SessionFilter {
    pub fn path(&self, cursor: Option<&str>) -> String {
        let running = self.ended == "running";
        let mut parts = Vec::new();
        let texts = [
            ("caller", self.caller.trim()),
            ("query", self.words.trim()),
            ("persona_id", &*self.persona_id),
            ("voice", self.voice.trim()),
            ("reason", if running { "" } else { &self.ended }),
            ("running", if running { "true" } else { "" }),
            ("cursor", cursor.unwrap_or_default()),
        ];
        for (name, value) in texts {
            if !value.is_empty() {
                parts.push(format!("{name}={}", address_part(value)));
            }
        }
        for (name, value) in [("from_ms", self.from_ms), ("to_ms", self.to_ms)] {
            parts.extend(value.map(|value| format!("{name}={value}")));
        }
        match parts.is_empty() {
            true => "api/sessions".to_owned(),
            false => format!("api/sessions?{}", parts.join("&")),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_filtered_is_asked() {
        let none = SessionFilter::default();
        assert_eq!(none.path(None), "api/sessions");
        assert_eq!(none.path(Some("a b")), "api/sessions?cursor=a%20b");
        let some = SessionFilter {
            caller: " link Ada ".to_owned(),
            ended: "hung_up".to_owned(),
            from_ms: Some(5),
            ..SessionFilter::default()
        };
        assert_eq!(
            some.path(None),
            "api/sessions?caller=link%20Ada&reason=hung_up&from_ms=5"
        );
        let running = SessionFilter {
            ended: "running".to_owned(),
            ..SessionFilter::default()
        };
        assert_eq!(running.path(None), "api/sessions?running=true");
        assert!(none.is_empty() && !running.is_empty());
    }
}
