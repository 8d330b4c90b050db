package spec

// Workflow is a workflow that runs can be made of. Each has one node.
type Workflow struct {
	ID          string
	Name        string
	Description string
	NodeType    string     // of its node
	MaxRetries  int        // attempts after the first one, by the policy of new runs
	Variables   []Variable // what its inputs may have
}

// Variable is an input of a workflow.
type Variable struct {
	Name        string `json:"name"`
	Type        string `json:"type"` // string, number, boolean, object, array
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
}

// Node is the id of the node that every workflow has, as events name it.
const Node = "execute"

// Definition is a workflow as GET /v1/workflows/{workflowId} shows it. OpenWOP allows no other members.
type Definition struct {
	ID          string           `json:"id"`
	Name        string           `json:"name"`
	Description string           `json:"description"`
	Version     string           `json:"version"`
	Nodes       []DefinitionNode `json:"nodes"`
	Edges       []struct{}       `json:"edges"`
	Triggers    []Trigger        `json:"triggers"`
	Variables   []Variable       `json:"variables"`
	Metadata    struct{}         `json:"metadata"`
	Settings    Settings         `json:"settings"`
}

// DefinitionNode is the node of a definition.
type DefinitionNode struct {
	ID       string   `json:"id"`
	Type     string   `json:"typeId"`
	Name     string   `json:"name"`
	Position Position `json:"position"`
	Config   struct{} `json:"config"`
	Inputs   struct{} `json:"inputs"`
}

// Position is where an editor draws a node.
type Position struct {
	X int `json:"x"`
	Y int `json:"y"`
}

// Trigger is what starts a run.
type Trigger struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

// Settings bounds a run.
type Settings struct {
	MaxRetries int `json:"maxRetries"`
}

// Definition returns the workflow as it is shown.
func (w Workflow) Definition() Definition {
	variables := w.Variables
	if variables == nil {
		variables = []Variable{}
	}
	return Definition{
		ID: w.ID, Name: w.Name, Description: w.Description, Version: "1.0.0",
		Nodes: []DefinitionNode{{ID: Node, Type: w.NodeType, Name: w.Name}}, Edges: []struct{}{},
		Triggers: []Trigger{{ID: "manual", Type: "manual"}}, Variables: variables, Settings: Settings{w.MaxRetries},
	}
}
